// Cells with the tag "live": a reader edits them and runs them in the page.
//
// Python comes in python.js (book/_tools/live.py packs it), loaded when it is first needed,
// and runs in a worker. It works the same from a server and from a double-clicked file.

(() => {
  const own = document.currentScript;
  const python = new URL(own.dataset.python, own.src).href;

  // The worker's own code. It is passed on as text: a page opened by double-click may start
  // a worker from a Blob, but not from a file, and not a module worker.
  function insideWorker() {
    let run;

    async function unpacked(text, type) {
      const packed = await fetch("data:application/gzip;base64," + text);
      const stream = packed.body.pipeThrough(new DecompressionStream("gzip"));
      return new Response(stream, { headers: { "Content-Type": type } }).blob();
    }

    async function start(files) {
      // Pyodide refuses a worker that can import scripts; it needs modules, and those it gets.
      self.importScripts = () => {
        throw new TypeError("modules only");
      };
      const blobs = await Promise.all([
        unpacked(files.loader, "text/javascript"),
        unpacked(files.engine, "text/javascript"),
        unpacked(files.wasm, "application/wasm"),
        unpacked(files.library, "application/zip"),
        unpacked(files.modules, "application/zip"),
      ]);
      const [loader, engine, wasm, library] = blobs.map((blob) => URL.createObjectURL(blob));
      const { loadPyodide } = await import(loader);
      const here = wasm + "#"; // Pyodide adds a file's name, which after a # changes nothing
      const pyodide = await loadPyodide({
        createPyodideModule: (await import(engine)).default,
        indexURL: here,
        packageBaseUrl: here,
        stdLibURL: library,
        lockFileContents: files.lock,
        stdin: () => null, // nobody answers an input()
      });
      pyodide.unpackArchive(await blobs[4].arrayBuffer(), "zip");
      run = pyodide.pyimport("live_cell").answer;
    }

    onmessage = async ({ data }) => {
      try {
        if (data.files) {
          await start(data.files);
          postMessage({ ready: true });
        } else {
          const from = performance.now();
          const result = JSON.parse(run(JSON.stringify(data)));
          postMessage({ result, took: performance.now() - from });
        }
      } catch (error) {
        postMessage({ broken: String(error) });
      }
    };
  }

  // One Python for the page. Jobs wait for each other; the first in `jobs` is running.

  let loading = null; // python.js, once it is asked for
  let worker = null;
  let ready = false;
  const jobs = [];

  function load() {
    loading ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = python;
      script.onload = () => resolve(window.tinyservePython);
      script.onerror = () => {
        loading = null; // the next press tries again
        script.remove();
        reject(new Error("Python could not be fetched: _static/python.js did not load."));
      };
      document.head.append(script);
    });
    return loading;
  }

  async function startPython() {
    if (worker) return;
    const files = await load();
    if (worker) return; // somebody else was faster
    const source = URL.createObjectURL(new Blob([`(${insideWorker})()`]));
    worker = new Worker(source);
    URL.revokeObjectURL(source);
    worker.onmessage = ({ data }) => {
      if (data.broken) return fail(data.broken);
      if (data.ready) ready = true;
      else jobs.shift().done(data);
      next();
    };
    worker.onerror = (event) => fail(event.message || "the worker did not start");
    worker.postMessage({ files });
    next();
  }

  function endPython() {
    worker?.terminate();
    worker = null;
    ready = false;
  }

  function fail(reason) {
    endPython();
    const broken = { printed: "", shown: null, error: `Python stopped: ${reason}` };
    jobs.splice(0).forEach((job) => job.done({ result: broken }));
  }

  function next() {
    jobs.forEach((job, place) => {
      if (place) job.say("Waiting for the other cell…");
      else job.say(ready ? "Running…" : worker ? "Starting Python…" : "Fetching Python, 8 MB…");
    });
    if (!jobs.length) return;
    if (!worker) startPython().catch((error) => fail(error.message));
    else if (ready && !jobs[0].sent) {
      jobs[0].sent = true;
      worker.postMessage(jobs[0].request());
    }
  }

  function start(job) {
    jobs.push(job);
    next();
  }

  function stop(job) {
    const place = jobs.indexOf(job);
    if (place < 0) return;
    jobs.splice(place, 1);
    if (job.sent) endPython(); // nothing else ends an endless loop
    job.done(null);
    next();
  }

  // What a reader wrote is kept until Reset, also when the page is left. In two places: for
  // double-clicked pages Chromium at times shows an empty localStorage until the next visit.

  const page = location.pathname.split("/").pop();

  function keep(original, text) {
    const key = `tinyserve ${page} ${original}`;
    try {
      sessionStorage.setItem(key, text); // the original too: it tells that nothing is kept
      if (text === original) localStorage.removeItem(key);
      else localStorage.setItem(key, text);
    } catch {} // a browser may refuse; everything else works
  }

  function keptFor(original) {
    const key = `tinyserve ${page} ${original}`;
    try {
      return sessionStorage.getItem(key) ?? localStorage.getItem(key) ?? original;
    } catch {
      return original;
    }
  }

  // Cells

  const cells = [...document.querySelectorAll("div.cell")].filter((cell) =>
    cell.querySelector(".cell_input pre"),
  );
  const texts = new Map(); // a live cell -> a function that gives its present text
  const textOf = (cell) =>
    cell.querySelector(".cell_input pre").textContent.replace(/\n$/, "");

  // The cells above as they are now, without the folded solutions.
  function above(cell) {
    return cells
      .slice(0, cells.indexOf(cell))
      .filter((other) => !other.classList.contains("tag_hide-cell"))
      .map((other) => texts.get(other)?.() ?? textOf(other));
  }

  function element(tag, className, properties) {
    return Object.assign(document.createElement(tag), { className, ...properties });
  }

  function box(kind, content) {
    const output = element("div", `output ${kind}`);
    if (kind === "stream") output.append(element("pre", "", { textContent: content }));
    else output.innerHTML = content;
    output.tabIndex = 0; // it may scroll
    output.setAttribute("role", "region");
    output.setAttribute("aria-label", "Output of your run");
    return output;
  }

  function milliseconds(took) {
    return took < 1000 ? `${Math.round(took)} ms` : `${(took / 1000).toFixed(1)} s`;
  }

  function makeLive(cell, number) {
    const original = textOf(cell);
    const code = cell.querySelector(".cell_input");
    const stored = cell.querySelector(".cell_output");

    const editor = element("textarea", "live-editor", { hidden: true, spellcheck: false });
    editor.value = original;
    editor.setAttribute("aria-label", `Code of live cell ${number}. Control and Enter runs it.`);
    for (const name of ["autocapitalize", "autocomplete", "autocorrect"])
      editor.setAttribute(name, "off");

    const bar = element("div", "live-bar");
    bar.setAttribute("role", "group");
    bar.setAttribute("aria-label", `Live cell ${number}`);
    const button = (textContent, onclick) =>
      bar.appendChild(element("button", "", { type: "button", textContent, onclick }));
    const edit = button("Edit", () => {
      open();
      editor.focus();
      startPython().catch(() => {}); // Run will say what is wrong
    });
    const run = button("Run", runCell);
    const halt = button("Stop", () => stop(job));
    const reset = button("Reset", resetCell);
    const status = bar.appendChild(element("span", "live-status"));
    status.setAttribute("role", "status");

    let output = null; // of the reader's last run
    let job = null; // while it runs or waits

    code.after(editor, bar);
    texts.set(cell, () => editor.value);

    // Shows the buttons that can be used. Run stays where it is, or a double click would
    // press what comes in its place; the focus does not vanish with a button.
    function update() {
      const focused = document.activeElement;
      edit.hidden = !editor.hidden;
      run.setAttribute("aria-disabled", job !== null);
      halt.hidden = job === null;
      reset.hidden = editor.hidden && output === null;
      if (focused === halt && halt.hidden) run.focus();
      if (focused === reset && reset.hidden) edit.focus();
    }

    function open() {
      code.hidden = true;
      editor.hidden = false;
      fit();
      update();
    }

    function fit() {
      editor.rows = editor.value.split("\n").length + 1;
    }

    function runCell() {
      if (job) return;
      const texts = { above: above(cell), source: editor.value };
      job = {
        request: () => texts,
        say: (text) => (status.textContent = text),
        done(answer) {
          job = null;
          if (answer) show(answer);
          else status.textContent = "Stopped.";
          update();
        },
      };
      update();
      start(job);
    }

    function show({ result, took }) {
      output?.remove();
      output = element("div", "cell_output live-output");
      const { printed, shown, error } = result;
      if (printed) output.append(box("stream", printed));
      if (shown) output.append(box({ text: "stream" }[shown[0]] ?? "text_html", shown[1]));
      if (error) output.append(box("stream", error));
      if (stored) stored.hidden = true;
      bar.after(output);
      const what = error ? "an error" : printed || shown ? "" : "nothing to show";
      const time = took === undefined ? "" : milliseconds(took);
      status.textContent = `Your run${[time, what].map((part) => part && `, ${part}`).join("")}`;
    }

    function resetCell() {
      if (job) stop(job);
      editor.value = original;
      keep(original, original);
      editor.hidden = true;
      code.hidden = false;
      output?.remove();
      output = null;
      if (stored) stored.hidden = false;
      status.textContent = "As in the book again.";
      update();
    }

    editor.addEventListener("input", () => {
      keep(original, editor.value);
      fit();
    });

    editor.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.isComposing || event.altKey) return;
      if (event.ctrlKey || event.metaKey || event.shiftKey) {
        event.preventDefault();
        runCell();
        return;
      }
      // A new line starts where this one does, one step further in after a colon.
      const line = editor.value.slice(0, editor.selectionStart).split("\n").pop();
      const indent = line.match(/^ */)[0] + (/:\s*$/.test(line) ? "    " : "");
      // The old command, because it is the one that can be undone.
      if (indent && document.execCommand("insertText", false, "\n" + indent))
        event.preventDefault();
    });

    const before = keptFor(original);
    if (before !== original) {
      editor.value = before;
      open();
      status.textContent = "Your text from an earlier visit. Reset brings the book’s back.";
    }
    update();
  }

  cells
    .filter((cell) => cell.classList.contains("tag_live"))
    .forEach((cell, place) => makeLive(cell, place + 1));
})();
