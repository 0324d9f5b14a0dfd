// One job: its windows as they come, its trees, its versions, what it costs; and what may be changed of it.

import { get, post, rowsOf, sql, watch } from "../api.js";
import { clock, fill, h, say, svg } from "../dom.js";
import { poll } from "../poll.js";
import { Table } from "../table.js";
import { drawTree } from "../tree.js";
import { groupsOf, Windows } from "../windows.js";

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
const VERSION = /^version (\d+)$/;
const PAST = 90; // windows before now
const TRIED = 3; // windows of a preview

export async function open(main, [name], shown) {
  const { session, signal, tell } = shown;
  if (!NAME.test(name ?? "")) return tell(`there is no job ${name ?? ""}`); // it comes from a link, and goes into statements
  const state = h("span", { class: "badge", hidden: true });
  const actions = h("div", { class: "push" });
  const query = h("pre");
  const facts = h("dl");
  const versions = h("ul");
  const versionsPart = h("section", { hidden: true }, h("h2", {}, "Versions"), versions);
  const trees = h("div");
  const windows = new Windows(signal);
  const explained = h("pre", { class: "wide-text", hidden: true, tabIndex: 0 });
  let known = {};

  const change = async (statement, question) => {
    if (question && !(await sure(question))) return false;
    try {
      const { text } = await sql(statement);
      tell("");
      say(done, text);
      if (!statement.startsWith("DROP ")) await refresh();
      return true;
    } catch (error) {
      tell(error.message);
      return false;
    }
  };
  const done = h("p", { class: "good", role: "status" });
  const pause = h("button", { onclick: () => change(`${known.state === "paused" ? "RESUME" : "PAUSE"} JOB ${name}`) }, "Pause");
  const alter = h("button", { onclick: () => alterDialog(name, known.query ?? "", (text) => change(`ALTER JOB ${name} AS ${text}`)) }, "Alter …");
  const drop = h(
    "button",
    {
      class: "danger",
      onclick: async () => {
        if (await change(`DROP JOB ${name}`, `Drop job ${name}? Its windows are gone then.`)) location.hash = "#/jobs";
      },
    },
    "Drop …",
  );
  if (session.may.write) actions.append(pause, alter, drop);

  const explain = h("button", { onclick: analyze }, "Explain, with what it costs");
  async function analyze() {
    explain.disabled = true;
    try {
      const { text } = await sql(`EXPLAIN ANALYZE ${name}`, signal);
      explained.hidden = false;
      say(explained, text);
    } catch (error) {
      if (error.name !== "AbortError") tell(error.message);
    } finally {
      explain.disabled = false;
    }
  }

  fill(
    main,
    h("div", { class: "title" }, h("h1", {}, name), state, actions),
    done,
    h("section", {}, query),
    h("section", {}, h("h2", {}, "Windows"), windows.node),
    h("section", {}, h("h2", {}, "Trees"), trees),
    versionsPart,
    h("section", {}, h("h2", {}, "Facts"), facts),
    h("section", {}, h("h2", {}, "Plan"), explain, explained),
    session.may.compare && comparePart(name, shown),
  );

  async function refresh() {
    const rows = await rowsOf(`DESCRIBE JOB ${name}`, signal);
    known = Object.fromEntries(rows.map(({ fact, value }) => [fact, value]));
    state.hidden = !known.state;
    say(state, known.state ?? "");
    state.className = `badge ${known.state === "active" ? "good" : "warn"}`;
    say(pause, known.state === "paused" ? "Resume" : "Pause");
    say(query, known.query ?? "");
    windows.group(groupsOf(known.query ?? ""));
    query.parentNode.hidden = !known.query;
    const others = rows.filter(({ fact }) => fact !== "query" && fact !== "state" && !VERSION.test(fact));
    const told = others.map(({ fact, value }) => `${fact}\t${value}`).join("\n");
    if (facts.told !== told) {
      facts.told = told;
      fill(facts, others.map(({ fact, value }) => [h("dt", {}, fact), h("dd", {}, value)]));
    }
    showVersions(rows.filter(({ fact }) => VERSION.test(fact)));
  }

  function showVersions(rows) {
    const told = rows.map(({ fact, value }) => `${fact}\t${value}`).join("\n");
    versionsPart.hidden = !rows.length;
    if (versions.told === told) return;
    versions.told = told;
    fill(
      versions,
      rows.map(({ fact, value }) => {
        const number = VERSION.exec(fact)[1];
        const back = session.may.write && !value.startsWith("current") && !/^(preparing|aborted)/.test(value);
        return h(
          "li",
          {},
          h("b", {}, fact),
          ` ${value} `,
          back &&
            h(
              "button",
              { onclick: () => change(`ROLLBACK JOB ${name} TO VERSION ${number}`, `Roll ${name} back to version ${number}?`) },
              "Roll back to it …",
            ),
        );
      }),
    );
  }

  let names = new Map();
  async function showTrees() {
    const [told, members] = await Promise.all([get(`jobs/${encodeURIComponent(name)}/tree`, signal), names.size ? [] : rowsOf("SHOW MEMBERS", signal)]);
    if (!names.size) names = new Map(members.map((one) => [one.address, one.agent]));
    const flows = told.flows ?? [];
    while (trees.children.length > flows.length) trees.lastChild.remove();
    flows.forEach((flow, place) => {
      if (!trees.children[place]) {
        trees.append(h("figure", { class: "flow" }, h("figcaption", { class: "dim" }), h("div", { class: "scroll" }, svg("svg", { class: "drawing", role: "img", "aria-label": "The tree of a flow" }))));
      }
      const figure = trees.children[place];
      const others = flow.readers.filter((one) => one !== name);
      const late = flow.edges.filter((edge) => edge.sealed_us !== null).map((edge) => edge.sealed_us);
      const behind = late.length ? (Math.max(...late) - Math.min(...late)) / 1e6 : 0;
      say(
        figure.querySelector("figcaption"),
        `over ${flow.stream}, ${flow.edges.length} agents${behind ? `, the last is ${behind.toLocaleString("en")} s behind the first` : ""}` +
          (others.length ? `; shared with ${others.join(", ")}` : ""),
      );
      const now = JSON.stringify([told.master, flow]);
      if (figure.told !== now) drawTree(figure.querySelector("svg"), flow, told.master, names);
      figure.told = now;
    });
  }

  const keys = (event) => {
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || document.querySelector("dialog")) return;
    if (event.key === "ArrowLeft") windows.step(-1);
    else if (event.key === "ArrowRight") windows.step(1);
    else return;
    event.preventDefault();
  };
  addEventListener("keydown", keys, { signal });

  watch({ [name]: `SUBSCRIBE ${name}` }, (event, data) => {
    if (event === "window") windows.add([data]);
    else if (event === "said" && !windows.windows.size) windows.wait(`No window yet: ${data.text}`);
    else if (event === "error") windows.wait(data.error);
    else if (event === "lost") tell(`${data.error}; trying again`);
    else if (event === "open") tell("");
    else if (event === "end") windows.wait("The job has ended.");
  }, signal);
  await refresh();
  const since = `-${stepOf(known.windows) * PAST} seconds`;
  get(`jobs/${encodeURIComponent(name)}/past?since=${encodeURIComponent(since)}`, signal)
    .then(({ windows: before }) => windows.add(before))
    .catch((error) => error.name !== "AbortError" && windows.wait(error.message));
  await showTrees();
  await poll(async () => {
    await refresh();
    await showTrees();
  }, 5, { signal, tell: (text) => text && tell(text) });
}

/** Seconds from one window to the next, from what DESCRIBE says of them (`1 h sliding by 5 min`). */
function stepOf(text = "") {
  const units = { ms: 0.001, s: 1, min: 60, h: 3600, d: 86400 };
  const found = [...text.matchAll(/([\d.]+) (ms|s|min|h|d)\b/g)].map(([, count, unit]) => count * units[unit]);
  return Math.max(1, Math.ceil(found.length ? Math.min(...found) : 60));
}

/** Ask before something is done that cannot be undone. */
function sure(question) {
  return new Promise((answer) => {
    const dialog = h(
      "dialog",
      {
        onclose: () => {
          answer(dialog.returnValue === "yes");
          dialog.remove();
        },
      },
      h("p", {}, question),
      h("form", { method: "dialog", class: "controls" }, h("button", { value: "no" }, "No"), h("button", { value: "yes", class: "main" }, "Yes")),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Another query for the job: it is looked at (EXPLAIN) before it is sent. */
function alterDialog(name, before, send) {
  const text = h("textarea", { spellcheck: false, "aria-label": "The new query", rows: 8 }, before);
  const said = h("pre", { class: "wide-text", hidden: true });
  const tried = h("div");
  let seen = null; // the text whose plan is shown, or that was tried: the second click sends it
  let trying = null;
  const look = async () => {
    try {
      const { text: plan } = await sql(`EXPLAIN ${text.value}`);
      said.className = "wide-text";
      say(said, plan);
      said.hidden = false;
      seen = text.value;
      return true;
    } catch (error) {
      said.className = "error";
      say(said, error.message);
      said.hidden = false;
      return false;
    }
  };
  const lookOn = () => {
    trying?.abort();
    trying = new AbortController();
    said.hidden = true;
    const asked = text.value;
    // On a line of its own: a comment at the end of the text must not swallow it.
    tryOut(tried, `ALTER JOB ${name} AS ${asked}\nPREVIEW ${TRIED} WINDOWS`, trying.signal, () => (seen = asked));
  };
  const dialog = h(
    "dialog",
    {
      onclose: () => {
        trying?.abort();
        dialog.remove();
      },
    },
    h("h2", {}, `Alter job ${name}`),
    text,
    h(
      "div",
      { class: "controls" },
      h("button", { onclick: () => dialog.close() }, "Cancel"),
      h("button", { onclick: look }, "Preview the plan"),
      h("button", { onclick: lookOn }, `Try it on ${TRIED} windows`),
      h("button", { class: "main", onclick: async () => (seen === text.value ? (await send(text.value)) && dialog.close() : look()) }, "Alter"),
    ),
    said,
    tried,
  );
  document.body.append(dialog);
  dialog.showModal();
}

/** What differs, window by window, while the new version runs beside the job; nothing is changed. */
function tryOut(node, statement, signal, done) {
  const wait = h("p", { class: "dim", role: "status" }, "The new version runs beside the job; nothing is changed …");
  fill(node, wait);
  const rows = (data, empty) => {
    const table = new Table({ empty });
    table.show(data);
    return table.node;
  };
  watch({ preview: statement }, (event, data) => {
    if (event === "pair") {
      const told = data.fellow ? `${data.alike} rows alike, ${data.gone} only now (-), ${data.come} only in the new version (+)` : "the job has no such window";
      wait.before(h("details", { open: true }, h("summary", {}, `${clock(data.start)} to ${clock(data.end)} UTC: ${told}`), rows(data, "no row differs")));
    } else if (event === "costs") {
      const lacking = [["now", data.only.gone], ["in the new version", data.only.come]].filter(([, names]) => names.length);
      const costs = h(
        "div",
        {},
        h("h2", {}, "What both have cost meanwhile"),
        rows(data, ""),
        data.shared > 0 && h("p", { class: "dim" }, `${data.shared} of the flows are the same one.`),
        lacking.map(([which, names]) => h("p", { class: "dim" }, `Columns only ${which}: ${names.join(", ")}`)),
        data.readers.length > 0 && h("p", { class: "warn" }, `It is read by ${data.readers.join(", ")}, so it cannot be altered.`),
      );
      wait.before(costs);
      say(wait, "Nothing is changed yet.");
      done();
    } else if (event === "error" || event === "lost") {
      wait.className = "bad";
      say(wait, data.error);
    }
  }, signal);
}

/** The windows against Spark over the archive. */
function comparePart(name, { tell, signal }) {
  const said = h("div");
  const button = h("button", { onclick: run }, "Compare with Spark");
  async function run() {
    button.disabled = true;
    fill(said, h("p", { class: "dim" }, "Spark runs the query over the archive; that takes a while …"));
    try {
      const found = await post(`jobs/${encodeURIComponent(name)}/compare`, {}, signal);
      const { comparison } = await import("../comparison.js");
      fill(said, comparison(found));
    } catch (error) {
      fill(said);
      if (error.name !== "AbortError") tell(error.message);
    } finally {
      button.disabled = false;
    }
  }
  return h("section", {}, h("h2", {}, "Live against offline"), button, said);
}
