// Apply what is new to a view, as tests/applied_deltas.py does; headrace/dashboard/view_delta.py makes it.

const SERIES = ["rates", "queues", "plans", "events"];

export function applied(view, change) {
  return Object.fromEntries(
    Object.entries(view).map(([name, sections]) => [name, sectionApplied(sections, change[name])]));
}

function sectionApplied(sections, change) {
  const found = {...sections, ...change.set};
  for (const name of SERIES) {
    const since = change.since[name];
    const every = [...sections[name], ...change.rows[name]];
    found[name] = since === null ? [] : every.filter((row) => row[0] >= since);
  }
  return found;
}
