"""The texts of docs/results/compass-sweeps.md, which ``compass_sweeps_page`` renders."""

TITLES = {
    "load": "Load (Visual Tracking)",
    "budget": "Planning budgets (Live Video Chat)",
    "slo": "Tighter SLOs (Speech Recognition)",
    "tiers": "Tiers (Visual Tracking)",
    "pieces": "Ablations (Visual Tracking, Live Video Chat)",
    "alone": "Sessions planned alone (Visual Tracking, Live Video Chat)",
    "moves": "Sessions that move (Visual Tracking, Live Video Chat)",
    "clusters": "Clusters of Circinus (Live Video Chat)",
    "knobs": "More configurations, higher accuracy (Speech Recognition)",
    "optimal": "Time to a near-optimal plan",
    "costs": "Cost over planning time",
    "searches": "Committees and planning time",
    "analysers": "Larger analysers (Agentic Code Generation)",
}
HEAD = """\
# Compass: sweeps over the modelled benchmark

**Every figure here is modelled**, by the model that [compass](compass.md) describes. The hours are
those of [compass-online](compass-online.md), which explains methods, load and the two variants of
planning time.

- `compass` plans for 5 s and the baselines for 15 s unless a section states another time.
  {queries} queries are drawn for each seed.
- Goodput is sessions per minute that were served by a plan that truly meets their objectives. In
  brackets, the shares of the sessions that got a plan in time, and that were served. The two shares
  separate sessions without a plan from sessions that were not admitted.
- Means have 95 % intervals over the seeds. Factors are ratios of the means over the seeds, with the
  95 % interval of a paired bootstrap.
- **Not reproduced** marks a figure below the papers'.

Not played:

- four GPU tiers with the papers' data sets; the four tiers below have the model's T4;
{slo}
The rows are in `docs/results/rows/compass-sweeps.jsonl`. Rows in OUT_DIR/sweeps.jsonl are not
played again. Since 3027eb0d a search that knows a plan goes on beyond the sixty likeliest
configurations. Rows from before: seeds 0 to 10 of load, budgets and larger analysers, 0 to 2 of
tiers, ablations and configurations, and all of near-optimal plans and committees.

**No row has the rule of 488e6e06 and 7c4a28eb**, by which a doubtful cheapest plan is profiled
further. By [compass](compass.md) final plans comply more often with it, for some 3 % more $ and
10 % more seconds of search. Rows with it may not be added to these.

Written by `python -m benchmarks.papers.compass_sweeps DATA_DIR OUT_DIR` on {day} ({commit}), Python
{python}, {machine}.
"""
NO_SLO = """\
- tighter SLOs (Compass, Figures 21 and 22; `--sweeps slo`).
"""
COSTS = """\
$ per hour of the GPUs that hold the cheapest plan of every session, without a limit on their
number, for sessions that all methods can plan (planning time {title}):
"""
OCCUPANCY = """\
Compass, Figures 13a and 26: GPUs are kept busy, and edge devices are used where possible. Means
over the hour of the share of each tier's GPUs that is taken, and of the share of running sessions
that use their edge device:
"""
TEXTS = {
    "load": """\
Compass, Figure 14a: the gap is largest at load 0.25, where baselines find no plan within 15 s for
many requests.
""",
    "budget": """\
Compass, Figure 14b: with the same planning time for every method, Compass equals baselines that
have ten times its time.
""",
    "slo": """\
Compass, Figures 21 and 22: latencies of 2.0 (easy), 1.5 and 1.1 (hard) times, and accuracies of
0.7, 0.8 and 0.9 times the mean of the query's Pareto front. One objective changes at a time, the
other one is medium. The paper has 2.5 to 5.0 and 1.5 to 3.5 times the goodput of the baselines.

The paper has a large cluster; here it is the medium one. With easy latencies most sessions need
their edge device only, so only a thousand sessions at a time would fill the large cluster.
""",
    "tiers": """\
Compass, Figure 24: all stages in the cloud; two tiers of GPUs (16 A100, 16 V100); three (16 T4 in
addition). The SLOs of each are 1.5 times the mean latency and 0.8 times the mean accuracy of its
own Pareto front. In the paper VideoStorm is slightly ahead of Vulcan in the cloud.
""",
    "pieces": """\
Compass, Figure 12a: every method plans for 5 s, with planning time as in the papers.

- *No profiler*: a fixed number of samples, and no reused prefixes.
- *No optimizer*: the search is `vulcan-like`, without history, with our profiler and our shares.
- *No scheduler*: the cheapest plan of each session is admitted in the order of arrival.
- `videostorm-like, first come` is the papers' baseline: planned alone, on whole GPUs.

Required: `compass` has 1.7 to 4.7 times the goodput without a component, and 3.0 to 5.6 times that
of the baseline.
""",
    "alone": """\
Compass, Figure 3b: Vulcan+, which plans every query for an hour, but each alone, stays far below an
oracle with joint planning. Here the oracle and two methods know every truly compliant plan on
arrival, more than an hour of planning finds. The oracle chooses for all sessions together; *first
come* takes the cheapest plan of each in the order of arrival. `compass` plans for 5 s, with
planning time as in the papers.
""",
    "moves": """\
Compass, Section 4.3, names a cost of moving running sessions without a formula. Headrace moves none
to make room for others. Here such moves cost nothing, so the gain is about the most that any cost
leaves (the schedule of all sessions is rounded, and differs from the greedy one of `compass`):

- *Repacked*: before every schedule, running sessions move to other GPUs of their tiers.
- *Replanned*: every 10 s one schedule (the linear program over classes) chooses among all plans of
  running and waiting sessions; running sessions stay served.

`compass` plans for 5 s, with planning time as in the papers.
""",
    "clusters": """\
Circinus (v1), Section 6: 4 A100 and 4 V100 (`small-v1`), 64 of each (`large-v1`), and the cloud
alone (16 A100; the SLOs of the section on tiers). The network is that of Compass. Required: 3.2 to
5.0 times the goodput of baselines with 15 s, 3.1 to 4.0 times lower cost, and 5 times in a single
tier. v1 has eight edge devices in its small cluster; here every session has its own.
""",
    "knobs": """\
Compass, Figure 32: random subsets of the 80 configurations, and accuracies of 30 to 70 %. Every
method plans for 5 s. Required: feasibility grows with the number of configurations, and the cost
falls to 0.11 of Vulcan's.
""",
    "optimal": """\
Compass, Table 1: modelled seconds until the search knows a truly compliant plan that costs at most
1.1 times the cheapest compliant one. Required: within 20 s.
""",
    "costs": """\
Compass, Figures 11 and 28: searches go on for 60 s (10 GPU-hours for DVC and ACG). The planning
time until a truly compliant plan costs at most 2, 1.5 and 1.1 times the cheapest one; a query that
never has such a plan counts with the whole time, so the means of methods with such queries are too
low. Plans that do not truly comply are left out: baselines accept more of them, and would deploy
them. Required for DVC and ACG: a comparable plan with a sixth of the profiling, and plans of half
the cost at the end.
""",
    "searches": """\
Searches with history until their first plan, in percent.

Compass, Section 4.1: past searches that predict the accuracy well need not predict the latency
well, so each objective has its own committee. Required: the two differ in more than half of the
searches. `compass` has a committee for accuracy only, since it composes latencies.

- *First voter differs*: the past search that best predicts the seconds of the profiles is not the
  one that best predicts their accuracy.
- *Voters differ*: the two committees of five differ.
- *Voters shared*: members of both committees. Two fives drawn at random from the twelve share 42 %.

Compass, Figure 12b: profiling takes more than 80 % of the planning time of interactive applications
(SR, VT, LVC), and more than 99 % of that of the others.

- *Profiling*: with the papers' 40 ms per proposal, which count more the shorter the profiles are.
- *Profiling, measured*: with the CPU time of the proposals here.
""",
    "analysers": """\
Compass, Figure 25: with two more analysers, of 14 and 32 billion parameters, the advantage is the
same or larger. Their seconds, sizes and qualities are extrapolated from the model's smaller ones
(1,296 plans instead of 972). The problems are those of the model, not of DS-1000.
""",
}
