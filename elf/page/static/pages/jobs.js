// The jobs: what each asks, who leads it, and whether it goes.

import { rowsOf } from "../api.js";
import { fill, h, say } from "../dom.js";
import { poll } from "../poll.js";

export async function open(main, _rest, shown) {
  const find = h("input", { type: "search", placeholder: "Find a job", "aria-label": "Find a job", oninput: () => show() });
  const list = h("div", { class: "grid" });
  const rest = h("p", { class: "dim", hidden: true });
  const cards = new Map();
  let jobs = [];
  fill(
    main,
    h("div", { class: "title" }, h("h1", {}, "Jobs"), h("div", { class: "push" }, find,)),
    list,
    rest,
  );
  const nothing = h("p", { class: "dim" }, "There are no jobs. A query becomes one with CREATE JOB name AS SELECT …");

  function show() {
    const wanted = find.value.toLowerCase();
    const seen = jobs.filter((job) => `${job.job} ${job.creator} ${job.stream} ${job.query}`.toLowerCase().includes(wanted));
    const now = seen.map((job) => {
      const key = `${job.creator}/${job.job}`;
      if (!cards.has(key)) cards.set(key, card(job));
      cards.get(key).update(job);
      return cards.get(key).node;
    });
    const nodes = now.length ? now : [nothing];
    if (nodes.length !== list.children.length || nodes.some((node, place) => node !== list.children[place])) fill(list, nodes);
  }

  await poll(async () => {
    jobs = await rowsOf("SHOW JOBS", shown.signal);
    jobs.sort((a, b) => a.job.localeCompare(b.job, "en", { numeric: true }));
    rest.hidden = !jobs.more;
    say(rest, `… and ${jobs.more} more, which are not shown: elf jobs lists all`);
    show();
  }, 3, shown);
}

function card({ job, creator, query }) {
  const state = h("span", { class: "badge" });
  const about = h("p", { class: "dim" });
  const reason = h("p", { class: "warn" });
  const budget = h("p", { class: "warn" });
  const node = h(
    "article",
    { class: "card" },
    h("div", { class: "title" }, h("h2", {}, h("a", { href: `#/job/${encodeURIComponent(job)}` }, job)), state),
    about,
    reason,
    budget,
    h("pre", {}, query),
  );
  const update = (now) => {
    say(state, now.state);
    state.className = `badge ${now.state === "active" ? "good" : "warn"}`;
    say(about, `${creator}, over ${now.stream}`);
    say(reason, now.reason ?? "");
    reason.hidden = !now.reason;
    say(budget, now.budget ?? "");
    budget.hidden = !now.budget;
  };
  return { node, update };
}
