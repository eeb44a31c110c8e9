/** The map: entity vectors in two dimensions, coloured by the answers of a relation. */

import { address, go, note, state } from "./address.js";
import { canvasMap, swatch } from "./canvas.js";
import { combobox } from "./combobox.js";
import { el, put } from "./dom.js";
import { short } from "./names.js";
import { count } from "./numbers.js";
import { fillFrom, skeleton } from "./loading.js";
import { entities } from "./query.js";
import { get } from "./service.js";

export function map() {
  const relation = el("select", {
    id: "map-relation",
    onchange: (event) => go({ ...state(), relation: event.target.value || undefined }),
  });
  const method = el(
    "select",
    {
      id: "map-method",
      onchange: (event) =>
        go({
          ...state(),
          at: undefined,
          method: event.target.value === "pca" ? undefined : event.target.value,
        }),
    },
    el("option", { value: "pca" }, "PCA"),
    el("option", { value: "tsne" }, "t-SNE"),
  );
  const choose = (name) => go({ ...state(), name: name || undefined });
  const box = combobox({ label: "Find", placeholder: "an entity", find: entities, choose });
  const container = el("div", { class: "map-place" }, skeleton(12));
  const hint = el("p", { class: "muted map-note", role: "status" });
  let drawn = null; // { key, map, data }
  let listed = "";

  function look(here) {
    drawn.map.look(here);
    put(hint, below(here, drawn.data));
  }

  async function listRelations(here, signal) {
    if (listed !== here.model) {
      const { relations } = await get("/v1/relations", { model: here.model }, signal);
      put(
        relation,
        el("option", { value: "" }, "none"),
        relations.map(({ name }) => el("option", { value: name }, short(name))),
      );
      listed = here.model;
    }
    relation.value = here.relation ?? "";
    method.value = here.method ?? "pca";
  }

  return {
    title: () => "Map",
    element: el(
      "div",
      { class: "view" },
      el("h1", { tabindex: "-1" }, "Map"),
      el(
        "section",
        { class: "card map-card" },
        el(
          "form",
          {
            class: "map-top",
            "aria-label": "Map settings",
            onsubmit: (event) => (event.preventDefault(), choose(box.value)),
          },
          el(
            "div",
            { class: "field" },
            el("label", { for: "map-relation" }, "Colour by relation"),
            relation,
          ),
          el("div", { class: "field" }, el("label", { for: "map-method" }, "Projection"), method),
          box.element,
        ),
        container,
      ),
    ),
    async update(here, signal) {
      box.value = here.name ?? "";
      const key = [here.model, here.relation, here.method].join("\n");
      if (drawn?.key === key) return look(here);
      const load = async () => {
        await listRelations(here, signal);
        return get(
          "/v1/map",
          { model: here.model, relation: here.relation, method: here.method },
          signal,
        );
      };
      const keep = (at) => note({ ...state(), at });
      const open = (name) => go({ view: "entity", model: state().model, name });
      let made = null;
      const done = await fillFrom(container, signal, load, (data) => {
        made = { key, map: canvasMap(data, { keep, open }), data };
        return [made.map.element, legend(data), hint];
      });
      if (signal.aborted) return; // the old map stays
      drawn = done ? made : null;
      if (drawn) look(here);
    },
  };
}

function legend({ legend: names, colours }) {
  if (names.length < 2)
    return el("p", { class: "legend map-legend muted" }, "Choose a relation to colour the points.");
  const sizes = names.map((_, i) => colours.filter((item) => item === i).length);
  return el(
    "ul",
    { class: "legend map-legend", "aria-label": "Colours" },
    names.map((name, i) =>
      el(
        "li",
        {},
        el("span", { class: `swatch ${swatch(names, i)}`, "aria-hidden": "true" }),
        short(name),
        " ",
        el("span", { class: "muted" }, count(sizes[i])),
      ),
    ),
  );
}

function below(here, data) {
  const { model, name } = here;
  return [
    `${count(data.names.length)} entities. ${capital(data.note ?? "")}. Drag to pan, scroll or use + and − to zoom, click for the entity. `,
    name && !data.names.includes(name) && `${short(name)} is not on the map. `,
    name && el("a", { href: address({ view: "entity", model, name }) }, `Open ${short(name)}`),
  ];
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
