// Three things that style sheets cannot do.

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
