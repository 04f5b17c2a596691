// The page: follow the stream of views, draw the chosen pipeline, and answer keys.

import {drawCharts, resizeCharts, restyleCharts} from "./charts.js";
import {element, show} from "./elements.js";
import {drawPanels} from "./panels.js";
import {clock} from "./text.js";
import {applied} from "./view.js";

const RANGES_S = [120, 300, 600];
const LEAST_S = 60; // shown even where less is known
const QUIET_S = 10; // a view comes every second
const AGAIN_MS = 5000;
const PANELS = [...document.querySelectorAll(".panel")];

const page = {view: null, pipeline: null, range: 1, held: false, heard: 0, connected: false};

const $ = (id) => document.getElementById(id);

function follow() {
  const stream = new EventSource("/events");
  stream.addEventListener("view", (event) => take(JSON.parse(event.data)));
  stream.addEventListener("delta", (event) => take(applied(page.view, JSON.parse(event.data))));
  stream.onerror = () => {
    page.connected = false;
    tellState();
    // The browser itself tries again unless there was an answer, such as that of a proxy.
    if (stream.readyState === EventSource.CLOSED) setTimeout(follow, AGAIN_MS);
  };
}

function take(view) {
  const others = Object.keys(view).join() !== Object.keys(page.view ?? {}).join();
  page.view = view;
  page.connected = true;
  page.heard = Date.now() / 1000;
  // A dashboard that was started again may show other pipelines.
  if (others) choose(view[page.pipeline] ? page.pipeline : Object.keys(view)[0]);
  else if (!page.held) draw();
  tellState();
}

function draw() {
  const view = page.view?.[page.pipeline];
  if (!view) return;
  const to = view.rates.length ? view.rates.at(-1)[0] : page.heard;
  const first = view.rates.length ? view.rates[0][0] : to;
  const span = Math.min(RANGES_S[page.range], Math.max(LEAST_S, to - first));
  const shown = {from: to - span, to};
  drawPanels(view, shown);
  drawCharts(view, shown);
  document.title = `${page.pipeline} – Headrace`;
}

function choose(name) {
  page.pipeline = name;
  const buttons = Object.keys(page.view).map((each) => {
    const made = element("button", each);
    made.setAttribute("aria-current", String(each === name));
    made.onclick = () => choose(each);
    return made;
  });
  show("pipelines", ...buttons);
  draw();
}

function tellState() {
  const when = page.heard ? `as of ${clock(page.heard)}` : "no data yet";
  const quiet = page.connected && Date.now() / 1000 - page.heard > QUIET_S;
  const bad = !page.connected || quiet;
  const state = $("state");
  // The time changes every second: a screen reader is to read problems only.
  state.setAttribute("aria-live", bad ? "polite" : "off");
  state.textContent = !page.connected ? `disconnected, ${when}` :
    quiet ? `no news, ${when}` : page.held ? "updates paused" : when;
  state.className = bad ? "bad" : "";
}

function turnRange() {
  page.range = (page.range + 1) % RANGES_S.length;
  tellRange();
  draw();
}

function tellRange() {
  $("range").textContent = `${RANGES_S[page.range] / 60} min`;
}

function hold() {
  page.held = !page.held;
  $("hold").setAttribute("aria-pressed", String(page.held));
  tellState();
  if (!page.held) draw();
}

function turnTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
  localStorage.setItem("theme", document.documentElement.dataset.theme);
  restyle();
}

function restyle() {
  restyleCharts();
  draw();
}

function step(by) {
  const names = Object.keys(page.view ?? {});
  const at = names.indexOf(page.pipeline);
  if (names.length) choose(names[(at + by + names.length) % names.length]);
}

function goTo(number) {
  const panel = PANELS.filter((each) => !each.hidden)[number - 1];
  panel?.querySelector("h2").focus();
  panel?.scrollIntoView({block: "start"});
}

const KEYS = {
  r: turnRange, p: hold, t: turnTheme,
  "?": () => $("help").showModal(), "[": () => step(-1), "]": () => step(1),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
  if (/^[1-9]$/.test(event.key)) goTo(Number(event.key));
  else KEYS[event.key]?.();
});

const kept = localStorage.getItem("theme");
if (kept) document.documentElement.dataset.theme = kept;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", restyle);
$("range").onclick = turnRange;
$("hold").onclick = hold;
$("theme").onclick = turnTheme;
$("help-button").onclick = KEYS["?"];
addEventListener("resize", () => { resizeCharts(); draw(); });
tellRange();
setInterval(tellState, 1000 * QUIET_S);
follow();
