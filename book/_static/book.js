// What style sheets cannot do.

// A page opened by double-click may not fetch others: there, search shows titles only.
if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}

// A notebook is for saving: a server may say it is text, and a browser would show that.
addEventListener("DOMContentLoaded", () => {
  for (const link of document.querySelectorAll("a.btn-download-source-button")) {
    link.download = "";
    link.removeAttribute("target");
  }
});

// On paper: light, with every fold open; afterwards as it was.
let before = null;
addEventListener("beforeprint", () => {
  const root = document.documentElement;
  const folded = [...document.querySelectorAll("details:not([open])")];
  before = before ?? { theme: root.dataset.theme, folded };
  root.dataset.theme = "light";
  folded.forEach((fold) => (fold.open = true));
});
addEventListener("afterprint", () => {
  if (!before) return;
  document.documentElement.dataset.theme = before.theme;
  before.folded.forEach((fold) => (fold.open = false));
  before = null;
});

// A name for assistive software that differs from the words on a button hides those words:
// the words are the better name. Entries of the bibliography are items of its list.
document.addEventListener("DOMContentLoaded", () => {
  for (const control of document.querySelectorAll("button[aria-label], summary[aria-label]")) {
    const words = control.innerText.trim(); // what can be seen
    if (words && !control.ariaLabel.includes(words)) control.removeAttribute("aria-label");
  }
  for (const control of document.querySelectorAll(".theme-switch-button")) {
    control.ariaLabel = "Color mode: Light, Dark, System Settings"; // its icons' own names
  }
  for (const entry of document.querySelectorAll(".citation-list > .citation")) {
    entry.setAttribute("role", "listitem");
  }
});
