// The frame: who is here, which page is shown, and what has gone wrong. A page is a module with `open(main, rest,
// shown)`: it fills `main`, and `shown.signal` says when it is left.

import { arrive, forget, get, has, keep } from "./api.js";
import { fill, h, say } from "./dom.js";

const PAGES = [
  ["fleet", "Fleet"],
  ["jobs", "Jobs"],
  ["panels", "Panels"],
  ["query", "Query"],
  ["compare", "Compare"],
  ["regions", "Regions"],
];
const main = document.getElementById("main");
const nav = document.querySelector("nav");
const notice = document.querySelector(".notice");
let session = null;
let left = null;

/** What has gone wrong, or an empty text. */
export function tell(text) {
  notice.hidden = !text;
  say(notice, text);
}

async function route() {
  left?.abort();
  left = new AbortController();
  const { signal } = left;
  const [page, ...rest] = location.hash.replace(/^#\//, "").split("/").map(decodeURIComponent);
  tell("");
  if (!session && !(await enter())) return;
  if (signal.aborted) return;
  const named = page === "job" ? "jobs" : page;
  if (!PAGES.some(([name]) => name === named)) {
    location.replace("#/fleet");
    return;
  }
  for (const link of nav.children) {
    if (link.dataset.page === named) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${rest[0] ?? PAGES.find(([name]) => name === named)[1]} – elf`;
  try {
    const module = await import(`./pages/${page}.js`);
    if (signal.aborted) return;
    const before = main.dataset.page;
    main.dataset.page = page;
    if (before !== page) window.scrollTo(0, 0);
    await module.open(main, rest, { session, signal, tell: (text) => signal.aborted || tell(text) });
  } catch (error) {
    if (signal.aborted || error.name === "AbortError") return;
    if (error.status === 401) {
      session = null;
      signIn(error.message);
    } else {
      tell(error.message);
    }
  }
}

async function enter() {
  try {
    session = await get("session");
  } catch (error) {
    if (error.status === 401) signIn(has() ? error.message : "");
    else tell(`${error.message}. Reload the page to try again.`);
    return false;
  }
  fill(nav, PAGES.map(([name, title]) => h("a", { href: `#/${name}`, "data-page": name }, title)));
  fill(
    document.querySelector(".session"),
    h("span", { title: `roles: ${session.roles.join(", ") || "none"}; answered by ${session.agent} (${session.address})` }, session.name),
    h("button", { class: "quiet", title: "Light or dark", "aria-label": "Light or dark", onclick: turn }, "◐"),
    h("button", { class: "quiet", title: "Keys", "aria-label": "Keys", onclick: help }, "?"),
    h("button", { class: "quiet", onclick: leave }, "Sign out"),
  );
  return true;
}

function signIn(why) {
  fill(nav);
  fill(document.querySelector(".session"));
  const token = h("input", { type: "password", id: "token", autocomplete: "off", required: true, placeholder: "elf_…" });
  const form = h(
    "form",
    {
      class: "card",
      onsubmit: (event) => {
        event.preventDefault();
        keep(token.value.trim());
        route();
      },
    },
    h("h1", {}, "Sign in"),
    h("p", {}, "Open the link that ", h("code", {}, "elf ui"), " prints, or paste a token of yours: ", h("code", {}, "elf keys bearer"), " makes one."),
    why && h("p", { class: "bad" }, why),
    h("p", { class: "controls" }, h("label", { htmlFor: "token", class: "hidden" }, "Token"), token, h("button", { class: "main" }, "Sign in")),
  );
  fill(main, form);
  token.focus();
}

function leave() {
  forget();
  session = null;
  location.hash = "#/fleet";
  left?.abort();
  signIn("");
}

/** The other one of light and dark. */
function turn() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("elf theme", root.dataset.theme);
  dispatchEvent(new Event("elf-theme"));
}

function help() {
  const keys = [
    ["1 … 6", "the pages"],
    ["/", "the first field of a page"],
    ["← →", "the window before, after (a job)"],
    ["Ctrl Enter", "run the query"],
    ["?", "this"],
  ];
  const dialog = h(
    "dialog",
    { onclose: () => dialog.remove() },
    h("h2", {}, "Keys"),
    h("dl", {}, keys.map(([key, about]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, about)])),
    h("form", { method: "dialog", class: "controls" }, h("button", {}, "Close")),
  );
  document.body.append(dialog);
  dialog.showModal();
}

addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !session || document.querySelector("dialog")) return;
  const place = Number(event.key) - 1;
  if (PAGES[place]) location.hash = `#/${PAGES[place][0]}`;
  else if (event.key === "?") help();
  else if (event.key === "/") main.querySelector("input, textarea, select")?.focus();
  else return;
  event.preventDefault();
});

const theme = localStorage.getItem("elf theme");
if (theme) document.documentElement.dataset.theme = theme;
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("elf-out", ({ detail }) => {
  left?.abort();
  session = null;
  signIn(detail);
});
arrive();
addEventListener("hashchange", () => {
  arrive();
  route();
});
route();
