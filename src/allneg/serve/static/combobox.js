/** A text field with suggestions, by the ARIA combobox pattern; works with the keyboard alone. */

import { el, uniqueId, put } from "./dom.js";
import { short } from "./names.js";
import { count } from "./numbers.js";

const DELAY = 60; // milliseconds between the last key and the request

/**
 * @param {Object} about
 * @param {string} about.label
 * @param {string} about.placeholder
 * @param {(text: string, signal: AbortSignal) => Promise<Suggestion[]>} about.find
 * @param {(name: string) => void} about.choose called with the chosen suggestion
 *
 * @typedef {{ name: string, gloss?: string | null, aside?: string }} Suggestion
 */
export function combobox({ label, placeholder, find, choose }) {
  const [id, list] = [uniqueId("box"), uniqueId("list")];
  const options = el("ul", { id: list, role: "listbox", "aria-label": label, hidden: true });
  const status = el("span", { class: "unseen", role: "status" });
  const input = el("input", {
    id,
    type: "text",
    role: "combobox",
    placeholder,
    maxlength: 4096,
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    "aria-autocomplete": "list",
    "aria-expanded": "false",
    "aria-controls": list,
  });
  let found = [];
  let active = -1;
  let waiting = new AbortController();

  function set(name) {
    input.value = name;
    input.dataset.set = name; // the arrow keys then show all names
  }

  function close() {
    waiting.abort();
    options.hidden = true;
    put(options);
    found = [];
    mark(-1);
    input.setAttribute("aria-expanded", "false");
  }

  function mark(index) {
    active = index;
    [...options.children].forEach((option, i) => {
      if (option.role !== "option") return;
      option.setAttribute("aria-selected", String(i === index));
      if (i === index) option.scrollIntoView({ block: "nearest" });
    });
    if (index < 0) input.removeAttribute("aria-activedescendant");
    else input.setAttribute("aria-activedescendant", options.children[index].id);
  }

  function take(name) {
    set(name);
    close();
    choose(name);
  }

  function option({ name, gloss, aside }) {
    return el(
      "li",
      {
        id: uniqueId("option"),
        role: "option",
        "aria-selected": "false",
        // On mousedown: the field keeps its focus.
        onmousedown: (event) => (event.preventDefault(), take(name)),
      },
      el("span", { class: "option-name" }, short(name), gloss && el("small", {}, gloss)),
      aside && el("span", { class: "option-aside" }, aside),
    );
  }

  /** Suggestions for a text; `first` marks the first or the last of them. */
  async function suggest(text, first) {
    waiting.abort();
    waiting = new AbortController();
    const { signal } = waiting;
    try {
      await pause(first === undefined ? DELAY : 0, signal);
      found = await find(text, signal);
    } catch {
      return; // replaced by a newer request, or failed: then the answers show the error
    }
    if (signal.aborted || document.activeElement !== input) return;
    put(options, found.map(option));
    if (found.length === 0)
      put(options, el("li", { class: "none", role: "presentation" }, "No similar name"));
    options.hidden = false;
    input.setAttribute("aria-expanded", String(found.length > 0));
    status.textContent = found.length ? `${count(found.length)} suggestions` : "No similar name";
    mark(first === undefined || found.length === 0 ? -1 : first === "last" ? found.length - 1 : 0);
  }

  input.addEventListener("input", () => suggest(input.value.trim()));
  input.addEventListener("blur", close);
  input.addEventListener("mousedown", () => {
    if (options.hidden) setTimeout(() => suggest(""));
  });
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      if (options.hidden)
        suggest(
          input.value === input.dataset.set ? "" : input.value.trim(),
          step > 0 ? "first" : "last",
        );
      else if (found.length)
        mark(
          active < 0 && step < 0 ? found.length - 1 : (active + step + found.length) % found.length,
        );
    } else if (event.key === "Enter" && active >= 0) {
      event.preventDefault();
      take(found[active].name);
    } else if (event.key === "Escape" && !options.hidden) {
      event.preventDefault();
      close();
    } else if (event.key === "Escape") {
      input.value = "";
    } else if (event.key === "Enter") {
      close(); // the form submits the typed text
    }
  });

  return {
    element: el(
      "div",
      { class: "field" },
      el("label", { for: id }, label),
      el("div", { class: "box" }, input, options),
      status,
    ),
    input,
    /** A chosen name unchanged, or the typed text without outer spaces. */
    get value() {
      return input.value === input.dataset.set ? input.value : input.value.trim();
    },
    set value(name) {
      set(name);
    },
  };
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason));
    setTimeout(resolve, milliseconds);
  });
}
