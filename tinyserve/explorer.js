// Moves every explorer on the page that does not move yet. No animation, no network.
(() => {
  "use strict";
  const NS = "http://www.w3.org/2000/svg";
  const TONES = { none: "decode", cache: "cache", batch: "wall", both: "promised" };
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;

  const add = (parent, tag, attributes = {}, text = null) => {
    const made = parent.namespaceURI === NS || tag === "svg"
      ? document.createElementNS(NS, tag) : document.createElement(tag);
    for (const name in attributes) made.setAttribute(name, attributes[name]);
    if (text !== null) made.textContent = text;
    parent.append(made);
    return made;
  };
  // A rounded top for an axis, at or above the value.
  const ceiling = (value) => {
    const power = 10 ** Math.floor(Math.log10(Math.max(value, 4)));
    return [1, 2, 4, 5, 10].map((k) => k * power).find((top) => top >= value);
  };

  // A chart frame: axes with numbers, and functions from values to places.
  const frame = (svg, { width, top, height, left = 44, right = 8, xMax, yMax, label, xLabel }) => {
    const x = (v) => left + (v / xMax) * (width - left - right);
    const y = (v) => top + height - (v / yMax) * height;
    add(svg, "text", { x: left, y: top - 8 }, label);
    for (const share of [0, 0.5, 1]) {
      const at = y(yMax * share);
      add(svg, "line", { x1: left, x2: width - right, y1: at, y2: at, style: "stroke:var(--grid)" });
      add(svg, "text", { x: left - 6, y: at + 4, "text-anchor": "end" }, yMax * share);
      const last = share === 1;
      add(svg, "text", { x: x(xMax * share), y: top + height + 16,
        "text-anchor": share === 0 ? "start" : last ? "end" : "middle" },
        (xMax * share).toFixed(xMax < 20 ? 1 : 0) + (last ? xLabel : ""));
    }
    return { x, y };
  };
  const path = (points, x, y) =>
    points.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");
  const line = (svg, d, color, dash = "none") =>
    add(svg, "path", { d, style: `fill:none;stroke:var(--${color});stroke-width:2;stroke-dasharray:${dash}` });
  const area = (svg, d, x0, x1, y0, color) =>
    add(svg, "path", { d: `${d}L${x1} ${y0}L${x0} ${y0}Z`, style: `fill:var(--${color});opacity:.25;stroke:none` });

  const fillTable = (root, caption, head, rows) => {
    const box = root.querySelector(".tsx-table");
    box.textContent = "";
    Object.entries({ tabindex: 0, role: "region", "aria-label": caption }).forEach((pair) => box.setAttribute(...pair));
    const table = add(box, "table");
    add(table, "caption", {}, caption);
    const heads = add(add(table, "thead"), "tr");
    for (const cell of head) add(heads, "th", { scope: "col" }, cell);
    const body = add(table, "tbody");
    for (const row of rows) {
      const tr = add(body, "tr");
      row.forEach((cell, i) => add(tr, i ? "td" : "th", i ? {} : { scope: "row" }, cell));
    }
  };

  const views = {
    server(root, data) {
      const series = {};
      for (const name of ["queue", "held", "promised"]) series[name] = new Uint16Array(bytes(data[name]));
      let now = null, before = null;
      const values = (name, run, end) =>
        Array.from({ length: data.points }, (_, i) => [(end * i) / data.points, series[name][run * data.points + i]]);
      return ([rate, pages, limit, order], words) => {
        const run = ((rate * data.settings[1].words.length + pages) * data.settings[2].words.length + limit)
          * data.settings[3].words.length + order;
        if (now !== null && now.run !== run) before = now;
        now = { run, words };
        const [wait, end, queueMax, pagesMax, wall] = data.facts[run];
        const say = root.querySelector(".tsx-say"), text = data.say[run], cut = text.indexOf(".") + 1;
        if (say.textContent !== text || !say.firstElementChild) {
          say.textContent = "";
          add(say, "strong", {}, text.slice(0, cut));
          say.append(text.slice(cut));
        }
        root.style.setProperty("--tsx-tone", `var(--${TONES[wall]})`);

        const box = root.querySelector(".tsx-picture"), width = Math.max(280, box.clientWidth), all = data.pages[pages];
        box.textContent = "";
        const svg = add(box, "svg", { viewBox: `0 0 ${width} 372`, role: "img",
          "aria-label": `Queue and pages over ${end.toFixed(1)} s: at most ${queueMax} chats waiting, at most ${pagesMax} of ${all} pages in use.` });
        const upper = frame(svg, { width, top: 24, height: 90, xMax: end, yMax: ceiling(queueMax), label: "chats waiting", xLabel: " s" });
        line(svg, path(values("queue", run, end), upper.x, upper.y), "queue");
        const lower = frame(svg, { width, top: 170, height: 90, xMax: end, yMax: all, label: `pages in use (filled), promised (dashed), all ${all}`, xLabel: " s" });
        const held = path(values("held", run, end), lower.x, lower.y);
        area(svg, held, lower.x(0), lower.x(end * (1 - 1 / data.points)), lower.y(0), "held");
        line(svg, held, "held");
        line(svg, path(values("promised", run, end), lower.x, lower.y), "promised", "5 3");
        line(svg, `M${lower.x(0)} ${lower.y(all)}L${lower.x(end)} ${lower.y(all)}`, "wall");

        const bars = [["now", wait, TONES[wall]]];
        if (before) bars.push(["before", data.facts[before.run][0], "muted"]);
        const most = Math.max(...bars.map((bar) => bar[1]), 0.01);
        add(svg, "text", { x: 8, y: 308 }, "p99 wait for the first token");
        bars.forEach(([name, seconds, color], i) => {
          const at = 318 + 26 * i, long = Math.max(2, (seconds / most) * (width - 150));
          add(svg, "text", { x: 52, y: at + 14, "text-anchor": "end" }, name);
          add(svg, "rect", { x: 58, y: at, width: long, height: 18, style: `fill:var(--${color})` });
          add(svg, "text", { x: 64 + long, y: at + 14 }, `${seconds.toFixed(2)} s`);
        });
        const row = (entry) => {
          const [p99, , queue, most, name] = data.facts[entry.run];
          return [...entry.words, `${p99.toFixed(3)} s`, name, queue, most];
        };
        fillTable(root, "The same as numbers",
          ["", "a second", "pages", "limit", "order", "p99 wait", "wall", "longest queue", "most in use"],
          [["now", ...row(now)], ...(before ? [["before", ...row(before)]] : [])]);
      };
    },

    batching(root, data) {
      const at = { sent: new Float64Array(bytes(data.sent)), seat: new Uint8Array(bytes(data.seat)),
        joined: new Float64Array(bytes(data.joined)), done: new Float64Array(bytes(data.done)) };
      const n = at.sent.length / data.settings[0].words.length;
      const clock = root.querySelectorAll("input")[3];
      const buttons = document.createElement("div");
      root.querySelector("fieldset").after(buttons);
      for (const [text, by] of [["back 0.1 s", -1], ["on 0.1 s", 1], ["back 1 s", -data.ticks], ["on 1 s", data.ticks]]) {
        add(buttons, "button", { type: "button" }, text).addEventListener("click", () => {
          clock.value = Number(clock.value) + by;
          clock.dispatchEvent(new Event("input"));
        });
      }
      return ([rate, slots, mix, tick], words) => {
        const setting = (rate * data.slots.length + slots) * data.settings[2].words.length + mix;
        const seconds = tick / data.ticks, places = data.slots[slots], sent = at.sent.subarray(rate * n, (rate + 1) * n);
        const servers = ["fixed", "continuous"].map((policy, k) => {
          const from = (2 * setting + k) * n, part = (name) => at[name].subarray(from, from + n);
          const joined = part("joined"), done = part("done"), seat = part("seat");
          const seats = Array(places).fill(null);
          let waiting = 0;
          for (let i = 0; i < n; i++) {
            if (joined[i] <= seconds && seconds < done[i]) seats[seat[i]] = i;
            if (sent[i] <= seconds && seconds < joined[i]) waiting += 1;
          }
          return { policy, seats, waiting, joined, done, used: seats.filter((i) => i !== null).length, end: Math.max(...done) };
        });
        const [fixed, continuous] = servers, end = Math.max(fixed.end, continuous.end);
        clock.max = Math.floor(end * data.ticks);
        root.querySelector(".tsx-say").textContent =
          `At ${seconds.toFixed(1)} s the fixed server has ${fixed.used} of ${places} slots in use and ${fixed.waiting} waiting, `
          + `the continuous one has ${continuous.used} in use and ${continuous.waiting} waiting.`;
        const box = root.querySelector(".tsx-picture");
        box.textContent = "";
        const pair = add(box, "div", { class: "tsx-pair" });
        for (const server of servers) {
          server.half = add(pair, "div");
          // Each change of a server: when, how many more in the slots, how many more in line.
          const events = [];
          for (let i = 0; i < n; i++) events.push([sent[i], 0, 1], [server.joined[i], 1, -1], [server.done[i], -1, 0]);
          events.sort((a, b) => a[0] - b[0]);
          let used = 0, waiting = 0;
          server.inUse = [[0, 0]];
          server.inLine = [[0, 0]];
          for (const [time, more, wait] of events) {
            server.inUse.push([time, used], [time, used += more]);
            server.inLine.push([time, waiting], [time, waiting += wait]);
          }
        }
        const most = ceiling(Math.max(...servers.flatMap((s) => [...s.inUse, ...s.inLine].map((point) => point[1]))));
        for (const server of servers) {
          const half = server.half, width = Math.max(240, half.clientWidth), columns = Math.min(places, 8);
          const rows = Math.ceil(places / columns), size = Math.min(34, (width - 8) / columns), top = 30 + rows * (size + 4);
          const svg = add(half, "svg", { viewBox: `0 0 ${width} ${top + 160}`, role: "img",
            "aria-label": `${server.policy} server: ${server.used} of ${places} slots in use, ${server.waiting} waiting, all done at ${server.end.toFixed(1)} s.` });
          add(svg, "text", { x: 0, y: 14, style: "font-weight:600" }, `${server.policy}: ${server.used} of ${places} in use, ${server.waiting} waiting`);
          server.seats.forEach((i, slot) => {
            const x = (slot % columns) * size, y = 24 + Math.floor(slot / columns) * (size + 4), idle = server.waiting > 0;
            add(svg, "rect", { x: x + 1, y, width: size - 4, height: size - 4, rx: 3,
              style: i !== null ? "fill:var(--decode)" : `fill:none;stroke:var(--${idle ? "wall" : "muted"});stroke-dasharray:3 3` });
            if (i !== null) add(svg, "text", { x: x + size / 2 - 1, y: y + size / 2 + 2, "text-anchor": "middle", style: "fill:var(--paper)" }, i);
          });
          const { x, y } = frame(svg, { width, top: top + 24, height: 100, xMax: end, yMax: most, label: "in a slot (solid), waiting (dashed)", xLabel: " s" });
          line(svg, path(server.inUse, x, y), "decode");
          line(svg, path(server.inLine, x, y), "queue", "5 3");
          line(svg, `M${x(seconds)} ${y(0)}L${x(seconds)} ${y(most)}`, "ink");
        }
        fillTable(root, `The same as numbers: ${words[0]} a second, ${places} slots, ${words[2]} replies, ${seconds.toFixed(1)} s`,
          ["", "in use", "waiting", "all done", "in the slots"],
          servers.map((s) => [s.policy, s.used, s.waiting, `${s.end.toFixed(2)} s`, s.seats.map((i) => (i === null ? "-" : i)).join(" ")]));
      };
    },
  };

  for (const root of document.querySelectorAll(".tsx:not([data-live])")) {
    root.dataset.live = "yes";
    root.querySelector(".tsx-off").remove();
    root.querySelector("fieldset").disabled = false;
    const data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
    const inputs = [...root.querySelectorAll("input")], draw = views[root.dataset.view](root, data);
    const show = () => {
      const at = inputs.map((input) => Number(input.value));
      const words = at.map((value, i) => data.settings[i].words[value]);
      inputs.forEach((input, i) => {
        input.setAttribute("aria-valuetext", words[i]);
        input.parentElement.querySelector("b").textContent = words[i];
      });
      const start = performance.now();
      draw(at, words);
      root.dataset.drawn = (performance.now() - start).toFixed(2); // milliseconds, for whoever measures
    };
    inputs.forEach((input) => input.addEventListener("input", show));
    new ResizeObserver(() => requestAnimationFrame(show)).observe(root);
    show();
  }
})();
