// Draw what is text and tables: cards, problems, events, devices, late queries, nodes, sessions.

import {element, show, table} from "./elements.js";
import {clock, number, percent, plural} from "./text.js";

let chosenLate = null; // the query whose waterfall is shown; null: the newest

export function drawPanels(view, shown) {
  drawTroubles(view.troubles);
  drawCards(view.now, view.sessions.length > 0);
  drawReasons(view.now);
  drawEvents(view, shown);
  show("flow-table", flowTable(view.flow.links));
  show("slots-table", slotsTable(view.slots));
  drawDevices(view);
  drawLate(view.late);
  show("variants-table", variantsTable(view.variants));
  show("nodes-table", nodesTable(view.nodes));
  drawSessions(view.sessions);
}

function drawTroubles(troubles) {
  const old = [...document.querySelectorAll("#troubles p")].map((each) => each.textContent);
  // Written only when it differs: a screen reader reads what is written here.
  if (old.join("\n") !== troubles.join("\n")) {
    show("troubles", ...troubles.map((each) => element("p", each)));
  }
}

function card(name, value, unit, note, bad = false) {
  const made = element("div", "", bad ? "card bad" : "card");
  const figure = element("div", value, "value");
  if (unit) figure.append(" ", element("small", unit));
  made.append(element("div", name, "name"), figure, element("div", note, "note"));
  return made;
}

function drawCards(now, sessions) {
  const ended = now.answered_qps + now.late_qps + now.dropped_qps + now.failed_qps +
    now.refused_qps;
  const inTime = ended > 0 ? now.answered_qps / ended : null;
  const slow = now.p95_ms !== null && now.slo_ms !== null && now.p95_ms > now.slo_ms && !sessions;
  const cards = [
    card("Policy", now.policy ?? "–", "", now.epoch === null ? "no plan yet" : `plan ${now.epoch}`),
    card("Arriving", number(now.arrived_qps), "/s",
      now.demand_qps ? `planned for ${number(now.demand_qps)}/s` : "planned for no demand"),
    card("In time", percent(inTime), "", `${number(now.answered_qps)}/s answered in time`,
      inTime !== null && inTime < 0.95),
    card("p95", number(now.p95_ms, 0), "ms",
      sessions ? "each session has its SLO" : `SLO ${number(now.slo_ms, 0)} ms`, slow),
    bindingCard(now),
    card("Workers", String(now.workers), "", `busy ${percent(now.busy, 0)}`),
    accuracyCard(now),
  ];
  if (now.usd_per_h !== null) {
    cards.push(card("Cost", `$${number(now.usd_per_h, 2)}`, "/h",
      `$${number(now.usd_per_1000_answers, 4)} per 1,000 answers`));
  }
  show("cards", ...cards);
}

function accuracyCard(now) {
  const measured = now.measured?.overall;
  const note = measured ? `measured on ${measured.queries} labels` :
    now.expected_accuracy === null ? "not known" : "expected";
  return card("Accuracy", percent(measured?.accuracy ?? now.expected_accuracy), "", note);
}

function bindingCard(now) {
  if (now.feasible === false) return card("Binding", "infeasible", "", now.binding, true);
  if (now.capacity_qps === null) return card("Capacity", "no limit", "", "every query is admitted");
  const note = now.paused ? "paused" : !now.demand_qps ? "planned for no demand" :
    `${number(now.capacity_qps / now.demand_qps)} times the planned demand`;
  return card("Capacity", number(now.capacity_qps), "/s", note);
}

function drawReasons(now) {
  const rows = Object.entries(now.reasons).map(([name, rate]) =>
    `${number(rate)}/s ${name.replace("/", " ").replaceAll("_", " ")}`);
  const classes = Object.entries(now.classes).map(([name, rates]) => {
    const every = Object.values(rates).reduce((sum, each) => sum + each, 0);
    return `${name || "no class"} ${number(every)}/s, ` +
      `${percent(every ? (rates.answered ?? 0) / every : null)} in time`;
  });
  const lines = [];
  if (rows.length) lines.push(element("p", `Not answered: ${rows.join(", ")}`));
  if (classes.length) lines.push(element("p", `By class: ${classes.join("; ")}`));
  show("reasons", ...lines);
}

function drawEvents(view, shown) {
  const all = view.plans.map((row) => row[1]);
  const plans = all.filter((plan) => !onlyRoutes(plan)).map((plan) => ({
    at_s: plan.issued_s, kind: "plan", good: plan.feasible,
    text: `plan ${plan.epoch}, policy ${plan.policy}: ${plan.reason}` +
      (plan.feasible ? "" : `; infeasible: ${plan.binding}`),
  }));
  const every = [...plans, ...view.events.map((row) => row[1])].filter((each) => each.at_s >= shown.from);
  every.sort((a, b) => b.at_s - a.at_s);
  show("events", ...every.slice(0, 60).map(eventLine));
  const last = all.at(-1);
  document.getElementById("in-force").textContent = last ?
    `plan ${last.epoch} since ${clock(last.issued_s)}: ${last.reason}. ` +
    "Plans that only change routes are not listed." : "no plan yet";
}

function onlyRoutes(plan) {
  return plan.causes.length > 0 && plan.causes.every((each) => each === "routes");
}

function eventLine(event) {
  const line = element("li", "", event.good ? "" : "bad");
  line.append(element("time", clock(event.at_s)), element("span", event.kind, "kind"),
    element("span", event.text, "what"));
  return line;
}

const text = {text: true};

function flowTable(links) {
  const columns = [
    ["from", (row) => row.source, text], ["to", (row) => row.target, text],
    ["items per query", (row) => number(row.items, 3)], ["share", (row) => percent(row.share)],
  ];
  return table(columns, links, "No plan yet.");
}

function slotsTable(slots) {
  const columns = [
    ["slot", (row) => `${row.task}:${row.slot}`, text], ["worker", (row) => row.worker, text],
    ["variant", (row) => row.variant, text], ["takes new work", (row) => row.open ? "yes" : "no"],
    ["records waiting", (row) => number(row.waiting, 0)],
    ["items held", (row) => number(row.held, 0)],
  ];
  return table(columns, slots, "No slot is leased.");
}

function drawDevices(view) {
  // An idle worker is not ready, as no variant is assigned to it: that is no trouble.
  const troubled = new Set(view.nodes.filter((node) => !["ready", "idle"].includes(node.state))
    .map((node) => node.device));
  const columns = [
    ["device", (row) => row.device, text], ["workers", (row) => String(row.workers)],
    ["ready", (row) => String(row.ready), {bad: (row) => troubled.has(row.device)}],
    ["busy", (row) => percent(row.busy, 0)],
    ["$/h", (row) => number(row.usd_per_h, 3)], ["serves", (row) => row.serves.join(", "), text],
  ];
  show("devices-table", table(columns, view.devices, "No worker is reporting."));
  const each = view.now.usd_per_1000_answers;
  document.getElementById("cost").textContent = view.now.usd_per_h === null ?
    "no device prices configured; busy: share of time that a worker computes" :
    `$${number(view.now.usd_per_h, 3)} an hour, $${number(each, 5)} per 1,000 answers`;
}

function variantsTable(rows) {
  const columns = [
    ["variant", (row) => `${row.task}/${row.variant}`, text],
    ["workers", (row) => String(row.workers)], ["waiting", (row) => String(row.queued)],
    ["in", (row) => number(row.arrived_qps)], ["done", (row) => number(row.finished_qps)],
    ["dropped", (row) => number(row.dropped_qps), {bad: (row) => row.dropped_qps > 0}],
    ["failed", (row) => number(row.failed_qps), {bad: (row) => row.failed_qps > 0}],
    ["batch", (row) => number(row.batch)], ["busy", (row) => percent(row.busy, 0)],
  ];
  return table(columns, rows, "No variant is serving.");
}

function nodesTable(rows) {
  const bad = (row) => row.state === "silent" || row.state === "failed" || row.state === "stuck";
  const columns = [
    ["node", (row) => row.name, text], ["role", (row) => row.role, text],
    ["state", (row) => row.state, {text: true, bad}], ["device", (row) => row.device, text],
    ["serves", (row) => row.serves, text], ["plan", (row) => String(row.epoch)],
    ["error", (row) => row.error, text],
  ];
  return table(columns, rows, "No node is reporting.");
}

function drawSessions(rows) {
  document.getElementById("sessions").hidden = rows.length === 0;
  const columns = [
    ["session", (row) => row.session, text], ["state", (row) => row.state, text],
    ["SLO, ms", (row) => number(row.slo.latency_ms, 0)],
    ["in time", (row) => percent(row.attainment)], ["$/h", (row) => number(row.usd_per_h, 3)],
    ["plan", (row) => row.plan ? Object.values(row.plan.settings).join(", ") : row.reason, text],
  ];
  show("sessions-table", table(columns, rows, "No session is open."));
}

function drawLate(rows) {
  const chosen = rows.find((each) => each.id === chosenLate) ?? rows[0];
  const focused = document.activeElement?.dataset?.query;
  const buttons = rows.map((each) => {
    const made = element("button", `${each.outcome} ${shortened(each.id)}`);
    made.dataset.query = each.id;
    made.setAttribute("aria-pressed", String(each === chosen));
    made.onclick = () => { chosenLate = each.id; drawLate(rows); };
    return made;
  });
  show("late-list", ...buttons);
  buttons.find((each) => each.dataset.query === focused)?.focus();
  show("waterfall", ...(chosen ? waterfall(chosen) :
    [element("p", "No query has been late, dropped or failed.", "empty")]));
}

function shortened(id) { // the end tells ids of one client apart
  return id.length <= 10 ? id : `…${id.slice(-8)}`;
}

function waterfall(query) {
  const late = query.latency_ms - query.deadline_ms;
  const when = late > 0 ? `${number(late)} ms after its deadline` :
    `${number(-late)} ms before its deadline`;
  const verdict = `${query.outcome}${query.task ? ` at ${query.task}` : ""} after ` +
    `${number(query.latency_ms)} ms, ${when}${query.reason ? `: ${query.reason}` : ""}`;
  const steps = [...query.stages.flatMap((stage) => stage.steps), query.last];
  const end = Math.max(query.deadline_ms, ...steps.map((step) => step.to_ms), 1);
  const fall = element("div", "", "fall");
  for (const stage of query.stages) {
    const batch = `batch of ${stage.batch_max}`;
    fall.append(element("div", `${stage.task}/${stage.variant} on ${stage.workers.join(", ")}, ` +
      `${stage.batches > 1 ? plural(stage.batches, "batch").replace("batchs", "batches") : batch}`,
      "stage"));
    for (const step of stage.steps) addStep(fall, step, query.deadline_ms, end);
  }
  if (query.stages.length) fall.append(element("div", "answer", "stage"));
  addStep(fall, query.last, query.deadline_ms, end);
  return [element("p", verdict, "verdict"), fall,
    ...query.notes.map((note) => element("p", note)),
    element("p", "red line: deadline; grey: in transit; yellow: queued; green: computing")];
}

function addStep(fall, step, deadline, end) {
  const bar = element("i", "", step.kind);
  bar.style.left = `${100 * Math.max(0, step.from_ms) / end}%`;
  bar.style.width = `${100 * Math.max(0, step.to_ms - Math.max(0, step.from_ms)) / end}%`;
  const track = element("div", "", "track");
  const due = element("b");
  due.style.left = `calc(${100 * Math.min(1, Math.max(0, deadline / end))}% - 1px)`;
  track.append(bar, due);
  fall.append(element("div", step.name), element("div", `${number(step.took_ms)} ms`, "took"),
    track);
}
