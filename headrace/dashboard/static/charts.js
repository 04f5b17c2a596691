// Draw the charts: for each one a function from the view to the options of ECharts.

import {clock, number, percent} from "./text.js";

const OUTCOMES = [ // name, colour, dashes
  ["answered", "--c2"], ["late", "--c3"], ["dropped", "--c1"], ["failed", "--c7"],
  ["refused", "--c6"],
];
const QUANTILES = [["p50", "--c2"], ["p95", "--c0"], ["p99", "--c6"]];

const charts = new Map();

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function restyleCharts() {
  for (const chart of charts.values()) chart.clear();
}

export function resizeCharts() {
  for (const chart of charts.values()) chart.resize();
}

export function drawCharts(view, shown) {
  draw("rates-chart", ratesOptions(view, shown));
  draw("latency-chart", latencyOptions(view, shown));
  draw("timeline-chart", timelineOptions(view, shown));
  draw("flow-chart", flowOptions(view.flow));
  draw("queues-chart", queuesOptions(view, shown));
  draw("devices-chart", devicesOptions(view, shown));
}

function draw(id, options) {
  const place = document.getElementById(id);
  if (!charts.has(id)) charts.set(id, echarts.init(place, null, {renderer: "canvas"}));
  const chart = charts.get(id);
  chart.setOption(options, {notMerge: true, lazyUpdate: true});
}

function narrow() {
  return innerWidth < 600;
}

function common(about) {
  const ink = colour("--ink"), soft = colour("--soft"), ground = colour("--panel");
  return {
    animation: false,
    aria: {enabled: true, label: {description: about}},
    textStyle: {color: ink, fontFamily: "system-ui, sans-serif", fontSize: 12},
    // Rich text is drawn on the canvas: markup with styles would be against the page's policy.
    tooltip: {
      trigger: "axis", renderMode: "richText", confine: true, backgroundColor: ground,
      borderColor: soft, textStyle: {color: ink, fontSize: 12}, axisPointer: {type: "line"},
    },
    legend: {top: 0, left: 0, textStyle: {color: ink}, itemWidth: narrow() ? 10 : 16,
      itemHeight: 8, itemGap: narrow() ? 8 : 10, icon: "roundRect", inactiveColor: soft},
    grid: {left: 8, right: 26, top: 30, bottom: 4, containLabel: true},
  };
}

// A narrow page has room for the seconds of few labels; it needs them within a few minutes.
function labelled(shown) {
  const brief = narrow() && shown.to - shown.from >= 240;
  return {parts: narrow() && !brief ? 2 : narrow() ? 3 : 5,
    text: (at_s) => clock(at_s).slice(0, brief ? 5 : 8)};
}

function timeAxis(shown, more = {}) {
  const {parts, text} = labelled(shown);
  return {
    type: "time", min: 1000 * shown.from, max: 1000 * shown.to, splitNumber: parts,
    axisLabel: {color: colour("--soft"), hideOverlap: true, formatter: (ms) => text(ms / 1000)},
    axisLine: {lineStyle: {color: colour("--soft")}}, axisTick: {show: false},
    splitLine: {show: false}, axisPointer: {label: {show: false}}, ...more,
  };
}

function valueAxis(more = {}) {
  return {
    type: "value", min: 0, axisLabel: {color: colour("--soft")},
    splitLine: {lineStyle: {color: colour("--faint")}}, splitNumber: 4, ...more,
  };
}

function points(view, shown, name) {
  const at = 1 + view.figures.indexOf(name);
  return view.rates.filter((row) => row[0] >= shown.from).map((row) => [1000 * row[0], row[at]]);
}

function line(view, shown, figure, name, css, more = {}) {
  return {
    name, type: "line", data: points(view, shown, figure), showSymbol: false,
    lineStyle: {width: 1.8, color: colour(css)}, itemStyle: {color: colour(css)}, ...more,
  };
}

function axisTip(digits, unit) {
  return (found) => [clock(found[0].value[0] / 1000), ...found.map((each) =>
    `${each.seriesName}  ${number(each.value[1], digits)} ${unit}`)].join("\n");
}

function ratesOptions(view, shown) {
  const options = common(`Queries per second by outcome: ${number(view.now.arrived_qps)} arrive, ` +
    `${number(view.now.answered_qps)} are answered in time.`);
  const areas = OUTCOMES.map(([name, css]) => line(view, shown, `${name}_qps`, name, css,
    {stack: "outcomes", areaStyle: {color: colour(css), opacity: 0.75}, lineStyle: {width: 0}}));
  const highest = Math.max(1, ...points(view, shown, "arrived_qps").map((each) => each[1] ?? 0));
  // A capacity far above the load would flatten everything else.
  const capacity = points(view, shown, "capacity_qps").map(([at, value]) =>
    [at, value === null || value > 3 * highest ? null : value]);
  options.tooltip.formatter = axisTip(1, "/s");
  if (narrow()) options.grid.top = 52; // the legend has two rows
  return {...options, xAxis: timeAxis(shown), yAxis: valueAxis(), series: [
    ...areas, line(view, shown, "arrived_qps", "arriving", "--ink", {z: 5}),
    line(view, shown, "capacity_qps", "capacity", "--soft", {data: capacity, step: "end", z: 4,
      lineStyle: {width: 1.5, type: "dashed", color: colour("--soft")}}),
  ]};
}

function latencyOptions(view, shown) {
  const now = view.now;
  const options = common(`Latency: p50 ${number(now.p50_ms)}, p95 ${number(now.p95_ms)}, p99 ` +
    `${number(now.p99_ms)} ms; the SLO is ${number(now.slo_ms, 0)} ms.`);
  options.tooltip.formatter = axisTip(1, "ms");
  const lines = QUANTILES.map(([name, css]) => line(view, shown, `${name}_ms`, name, css));
  const slo = line(view, shown, "slo_ms", "SLO", "--bad", {step: "end",
    lineStyle: {width: 1.8, type: "dashed", color: colour("--bad")}});
  return {...options, xAxis: timeAxis(shown), yAxis: valueAxis(), series: [...lines, slo]};
}

const LANES = ["nodes", "commands", "plans"];
const LANE_OF = {silent: 0, reports: 0, command: 1};

function timelineOptions(view, shown) {
  const options = common("Plans, commands and nodes on a time line; the list below shows the same data.");
  const plans = stretches(view.plans.map((row) => row[1]), shown).map((each) => ({
    value: [1000 * each.from, 1000 * each.to], plan: each.plans.at(-1), stretch: each,
  }));
  const events = view.events.map((row) => row[1]).filter((each) => each.at_s >= shown.from);
  const marks = events.map((each) => ({
    value: [1000 * each.at_s, LANE_OF[each.kind]], text: each.text,
    itemStyle: {color: colour(each.good ? "--c2" : "--bad")},
    symbol: each.kind === "command" ? "diamond" : "circle",
  }));
  options.tooltip.trigger = "item";
  options.tooltip.formatter = ({data, value}) => data.stretch ? stretchText(data.stretch) :
    `${clock(value[0] / 1000)}\n${wrapped(data.text)}`;
  delete options.legend;
  return {...options, grid: {...options.grid, top: 6}, xAxis: timeAxis(shown), yAxis: {
    type: "category", data: LANES, axisLabel: {color: colour("--soft")},
    axisLine: {show: false}, axisTick: {show: false},
    splitLine: {show: true, lineStyle: {color: colour("--faint")}},
  }, series: [
    {type: "custom", name: "plans", data: plans, encode: {x: [0, 1]}, clip: true,
      renderItem: (params, api) => planBox(api, plans[params.dataIndex].stretch)},
    {type: "scatter", name: "events", data: marks, symbolSize: 12},
  ]};
}

function wrapped(text) {
  return text.replace(/(.{1,60})(\s|$)/g, "$1\n").trim();
}

// Neighbouring plans of one policy that are alike feasible are one stretch.
function stretches(plans, shown) {
  const found = [];
  plans.forEach((plan, at) => {
    const from = Math.max(plan.issued_s, shown.from);
    const to = plans[at + 1]?.issued_s ?? shown.to;
    if (to <= shown.from) return;
    const last = found.at(-1);
    if (last && last.policy === plan.policy && last.feasible === plan.feasible) {
      last.to = to;
      last.plans.push(plan);
    } else found.push({from, to, policy: plan.policy, feasible: plan.feasible, plans: [plan]});
  });
  return found;
}

function stretchText(stretch) {
  const {plans} = stretch, plan = plans.at(-1);
  const lines = [
    `policy ${stretch.policy}, ${plans.length} plans: ${plans[0].epoch} to ${plan.epoch}`,
    `from ${clock(stretch.from)} to ${clock(stretch.to)}`,
    `at last planned for ${number(plan.demand_qps)}/s, capacity ${number(plan.capacity_qps)}/s`,
    ...Object.entries(plan.variants).map(([name, count]) => `${count} x ${name}`)];
  if (!plan.feasible) lines.push(wrapped(`infeasible: ${plan.binding}`));
  return lines.join("\n");
}

// The boxes of one policy have one colour, with a tick for each plan; infeasible ones are red.
function planBox(api, stretch) {
  const [left, middle] = api.coord([1000 * stretch.from, 2]);
  const right = api.coord([1000 * stretch.to, 2])[0];
  const height = 0.6 * api.size([0, 1])[1];
  const width = Math.max(2, right - left - 1);
  const hue = [...stretch.policy].reduce((sum, each) => sum + each.charCodeAt(0), 0) % 7;
  const box = {
    type: "rect", shape: {x: left, y: middle - height / 2, width, height, r: 3},
    style: {fill: colour(stretch.feasible ? `--c${hue}` : "--bad"), opacity: 0.85},
    textContent: width < 40 ? undefined : {style: {text: stretch.policy,
      fill: colour("--ground"), fontSize: 13, fontWeight: 600, overflow: "truncate",
      width: width - 6}},
    textConfig: {position: "inside"},
  };
  const ticks = stretch.plans.slice(1).map((plan) => {
    const x = api.coord([1000 * plan.issued_s, 2])[0];
    return {type: "line", silent: true, style: {stroke: colour("--ink"), opacity: 0.6},
      shape: {x1: x, x2: x, y1: middle + height / 2 - 1, y2: middle + height / 2 + 4}};
  });
  return {type: "group", children: [box, ...ticks]};
}

function flowOptions(flow) {
  const options = common("The plan: how tasks share their items among variants; the table below " +
    "shows the same data.");
  delete options.legend;
  const least = 1e-4; // a link of width 0 would hide the variant
  const depth = new Map();
  for (const link of flow.links) {
    const at = depth.get(link.source) ?? 0;
    depth.set(link.target, Math.max(at + 1, depth.get(link.target) ?? 0));
  }
  const nodes = flow.nodes.map((node, at) => ({
    name: node.name, itemStyle: {color: colour(node.kind === "task" ? "--soft" : `--c${at % 7}`)},
    depth: depth.get(node.name) ?? 0, node,
    label: {position: node.kind === "task" ? "top" : "right"},
  }));
  const links = flow.links.map((link) => ({
    source: link.source, target: link.target, value: Math.max(link.part, least), link,
  }));
  options.tooltip.trigger = "item";
  options.tooltip.formatter = ({data}) => data.link ? linkText(data.link) : nodeText(data.node);
  const last = Math.max(...depth.values()); // its labels lie beside the bars of the last column
  const longest = Math.max(0, ...flow.nodes.filter((node) => depth.get(node.name) === last)
    .map((node) => nodeLabel(node).length));
  return {...options, series: [{
    type: "sankey", data: nodes, links, left: 22, right: Math.min(130, 12 + 7 * longest), top: 22, bottom: 12, nodeGap: 18,
    nodeWidth: 12, draggable: false, emphasis: {focus: "adjacency"},
    label: {color: colour("--ink"), formatter: ({data}) => nodeLabel(data.node),
      textBorderColor: colour("--panel"), textBorderWidth: 3, fontSize: 12},
    lineStyle: {color: "gradient", opacity: 0.45, curveness: 0.5},
  }]};
}

function nodeLabel(node) {
  const name = node.kind === "task" ? node.name : node.name.slice(node.name.indexOf("/") + 1);
  return node.kind === "task" || narrow() ? name : `${name} (${node.workers})`;
}

function nodeText(node) {
  const workers = node.kind === "task" ? "" : `\n${node.workers} workers take new work`;
  return `${node.name}\n${number(node.items, 3)} items per query${workers}`;
}

function linkText(link) {
  return `${link.source} to ${link.target}\n${percent(link.share)}, ` +
    `${number(link.items, 3)} items per query`;
}

function queuesOptions(view, shown) {
  const options = common("Queues by slot over time; the table below shows the current values.");
  const leased = view.slots.map((each) => `${each.task}:${each.slot}`);
  const rows = view.queues.filter((row) => row[0] >= shown.from);
  const seen = rows.flatMap((row) => Object.keys(row[1]));
  const names = [...new Set([...leased, ...seen])].sort(bySlot).reverse();
  const step = Math.ceil((shown.to - shown.from) / 60); // sixty columns can be told apart
  const first = Math.floor(shown.from / step) * step;
  const cells = new Map();
  for (const [at, waiting] of rows) {
    const column = Math.floor((at - first) / step);
    for (const [name, count] of Object.entries(waiting)) {
      const key = `${column} ${name}`;
      cells.set(key, Math.max(count, cells.get(key) ?? 0));
    }
  }
  const columns = Array.from({length: Math.ceil((shown.to - first) / step)},
    (_, at) => clock(first + at * step));
  const apart = (narrow() ? 60 : 30) * Math.ceil(12 * step / 30); // seconds between labels
  const data = [...cells].map(([key, count]) => {
    const [column, name] = key.split(" ");
    return [Number(column), names.indexOf(name), count];
  });
  const most = Math.max(4, ...data.map((each) => each[2]));
  delete options.legend;
  options.tooltip.trigger = "item";
  options.tooltip.formatter = ({value}) =>
    `${names[value[1]]}, ${columns[value[0]]}\nat most ${value[2]} records`;
  return {...options, grid: {...options.grid, top: 6, right: 54},
    xAxis: {type: "category", data: columns, axisTick: {show: false},
      axisLabel: {color: colour("--soft"), hideOverlap: true, interval: (at) => (first + at * step) % apart < step,
        formatter: (_, at) => labelled(shown).text(first + at * step)},
      axisLine: {lineStyle: {color: colour("--soft")}}},
    yAxis: {type: "category", data: names, axisTick: {show: false}, axisLine: {show: false},
      axisLabel: {color: colour("--soft"), hideOverlap: true}},
    visualMap: {min: 0, max: most, right: 0, top: "middle", itemWidth: 10, itemHeight: 90,
      textStyle: {color: colour("--soft")}, text: [String(most), "0"], precision: 0,
      inRange: {color: [colour("--bar"), colour("--c3"), colour("--bad")]}},
    series: [{type: "heatmap", data}],
  };
}

function bySlot(a, b) {
  return a.localeCompare(b, "en", {numeric: true});
}

function devicesOptions(view, shown) {
  const options = common(`Workers ${view.now.workers}, busy ${percent(view.now.busy, 0)}.`);
  options.tooltip.formatter = (found) => [clock(found[0].value[0] / 1000), ...found.map((each) =>
    each.seriesName === "busy" ? `busy  ${percent(each.value[1], 0)}` :
      `${each.seriesName}  ${number(each.value[1], each.seriesName === "$/h" ? 3 : 0)}`)].join("\n");
  const series = [
    line(view, shown, "busy", "busy", "--c0", {yAxisIndex: 0, areaStyle: {opacity: 0.15}}),
    line(view, shown, "workers", "workers", "--c1", {yAxisIndex: 1, step: "end"}),
  ];
  if (view.now.usd_per_h !== null) {
    series.push(line(view, shown, "usd_per_h", "$/h", "--c2", {yAxisIndex: 1, step: "end"}));
  }
  return {...options, xAxis: timeAxis(shown), yAxis: [
    valueAxis({max: 1, interval: 0.25,
      axisLabel: {color: colour("--soft"), formatter: (part) => percent(part, 0)}}),
    valueAxis({splitLine: {show: false}, minInterval: 1}),
  ], series};
}
