// What each model is, from its model.json: widths, size, data, protocol, and its figures.

import { make, tell } from "./dom.js";
import { count, several } from "./words.js";

const METRICS = { "recall@5": "Recall@5", "recall@20": "Recall@20", "map@20": "MAP@20", "ndcg@20": "NDCG@20", auc: "AUC" };
const LEVELS = [
  ["window_x", "inputs"],
  ["window_h", "states"],
];

/** Return a table with a column for each model. */
export function modelTable(models) {
  const head = make(
    "tr",
    {},
    make("td"),
    ...models.map((one) =>
      make(
        "th",
        { scope: "col" },
        make("span", { class: "model-name", text: one.title }),
        make("span", { class: "aside", text: one.serving ? `answers by default · ${one.model}` : `beside it · ${one.model}` }),
      ),
    ),
  );
  const facts = [
    ["attention over", models.map(widths)],
    ["vector size d", models.map((one) => one.config?.d ?? "none")],
    ["catalogue", models.map((one) => several(one.items, "item"))],
    ["data set", models.map((one) => one.data?.name ?? "not noted")],
    ["its size", models.map((one) => size(one.protocol?.data))],
    ["split", models.map((one) => split(one.protocol?.split))],
    ["chosen by", models.map((one) => one.protocol?.selection ?? "nothing")],
    ["seen items", models.map((one) => (one.hide_seen ? "hidden" : "kept"))],
    ["against counting", models.map(against)],
  ];
  const plain = facts.map(([label, values]) =>
    make("tr", {}, make("th", { text: label, scope: "row" }), ...values.map((value) => make("td", { text: value }))),
  );
  return make("table", { class: "models" }, make("thead", {}, head), make("tbody", {}, ...plain, ...figures(models)));
}

function widths(one) {
  if (!one.has_attention) return "none";
  const on = LEVELS.filter(([key]) => (one.config?.[key] ?? 1) > 1).map(([key, what]) => `the last ${one.config[key]} ${what}`);
  return on.join(" and ") || "none";
}

const size = (data) => (data ? `${several(data.users, "user")}, ${several(data.events, "event")}` : "not noted");

function split(how) {
  if (!how?.split) return "not noted";
  const named = {
    ratio: `the first ${Math.round(100 * how.ratio)}% of each user's events train`,
    "leave-one-out": "each user's last event is the test",
    time: "by time",
    none: "none: all events train",
  };
  return named[how.split] ?? how.split;
}

/** Say how a model does against what only counts, as model.json has it. */
function against(one) {
  const { metric, models = {}, skipped = {} } = one.yardsticks ?? {};
  const own = one.metrics?.[metric];
  const others = Object.entries(models).filter(([, each]) => Number.isFinite(each[metric]));
  if (!Number.isFinite(own) || !others.length) return Object.keys(skipped).length ? "not compared" : "not noted";
  const better = others.filter(([, each]) => each[metric] >= own).map(([name]) => name);
  const listed = others.map(([name, each]) => `${name} ${(100 * each[metric]).toFixed(2)}%`).join(", ");
  const verdict = better.length ? `does not beat ${better.join(" or ")}` : `beats ${others.length > 1 ? "both" : "it"}`;
  return `${metric.toUpperCase()} ${(100 * own).toFixed(2)}%, ${listed}: ${verdict}`;
}

function figures(models) {
  return Object.entries(METRICS).map(([key, label]) => {
    const values = models.map((one) => one.metrics?.[key]);
    const best = Math.max(...values.filter((value) => Number.isFinite(value)), 1e-9);
    const cell = (value) =>
      Number.isFinite(value)
        ? make(
            "td",
            {},
            make("span", { text: `${(100 * value).toFixed(2)}%` }),
            tell(make("span", { class: "metric-bar" }), "--share", (value / best).toFixed(3)),
          )
        : make("td", { text: "\u2013" });
    return make("tr", { class: "metric" }, make("th", { text: label, scope: "row" }), ...values.map(cell));
  });
}

/** Say what to keep in mind when the figures are read. */
export function caution(models) {
  const measured = models.filter((one) => Number.isFinite(one.metrics?.["ndcg@20"]));
  if (!measured.length) return "There are no figures: all events were used to train, so none were left to test on.";
  const users = measured[0].protocol?.split?.counts?.users_evaluated;
  const whole = `Figures are of the test part${users ? ` of ${count(users)} users` : ""}, ranked over the whole catalogue.`;
  if (new Set(measured.map((one) => JSON.stringify(one.protocol))).size > 1)
    return `${whole} These models were measured under different protocols: do not compare them.`;
  return measured.length > 1 ? `${whole} All were measured under the same protocol; one run each, so small differences may be chance.` : whole;
}
