// Live answers against Spark over the archive: each job by itself, or all of them, one after the other.

import { post, rowsOf } from "../api.js";
import { comparison } from "../comparison.js";
import { fill, h, say } from "../dom.js";

export async function open(main, _rest, { session, signal, tell }) {
  const title = h("div", { class: "title" }, h("h1", {}, "Compare"));
  if (!session.may.compare) {
    fill(main, title, h("p", { class: "dim" }, "There is no Spark here. ", h("code", {}, "elf ui"), " compares where elf-stream[spark] is installed; ", h("code", {}, "elf compare"), " does at a terminal."));
    return;
  }
  const jobs = (await rowsOf("SHOW JOBS", signal)).filter((job) => job.flow);
  jobs.sort((a, b) => a.job.localeCompare(b.job, "en", { numeric: true }));
  let last = Promise.resolve(); // Spark takes one at a time
  const cards = jobs.map(card);
  const all = h("button", { class: "main", disabled: !cards.length, onclick: () => cards.forEach((one) => one.ask()) }, "Compare all");
  title.append(h("div", { class: "push" }, all));
  fill(
    main,
    title,
    h("p", { class: "dim" }, "The same queries over the archived lines, by Spark: equal windows, explained ones (late rows, missing agents …), and unexplained ones."),
    cards.length ? cards.map((one) => one.node) : h("p", { class: "dim" }, "There are no jobs to compare."),
  );

  function card({ job, query }) {
    const badge = h("span", { class: "badge dim", hidden: true });
    const found = h("div");
    const button = h("button", { onclick: ask }, "Compare");
    const node = h(
      "section",
      { "data-job": job },
      h("div", { class: "title" }, h("h2", {}, h("a", { href: `#/job/${encodeURIComponent(job)}` }, job)), badge, h("div", { class: "push" }, button)),
      h("details", {}, h("summary", { class: "dim" }, "The query"), h("pre", {}, query)),
      found,
    );
    function told(text) {
      badge.hidden = !text;
      say(badge, text);
    }
    function ask() {
      if (button.disabled) return;
      button.disabled = true;
      told("waits");
      last = last.then(run);
    }
    async function run() {
      if (signal.aborted) return;
      told("Spark is at work");
      try {
        fill(found, comparison(await post(`jobs/${encodeURIComponent(job)}/compare`, {}, signal)));
        told("");
      } catch (error) {
        if (error.name === "AbortError") return;
        told("");
        fill(found, h("p", { class: "bad" }, error.message));
        tell("");
      } finally {
        button.disabled = false;
      }
    }
    return { node, ask };
  }
}
