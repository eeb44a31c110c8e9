/** A text field with suggestions, after the ARIA combobox pattern; the keyboard alone suffices. */

import { el, fresh, put } from "./dom.js";
import { count } from "./numbers.js";

const DELAY = 60; // milliseconds without a key before the service is asked

/**
 * @param {Object} about
 * @param {string} about.label
 * @param {string} about.placeholder
 * @param {(text: string, signal: AbortSignal) => Promise<Suggestion[]>} about.find
 * @param {(name: string) => void} about.choose called with the suggestion that was taken
 *
 * @typedef {{ name: string, gloss?: string | null, aside?: string }} Suggestion
 */
export function combobox({ label, placeholder, find, choose }) {
  const [id, list] = [fresh("box"), fresh("list")];
  const options = el("ul", { id: list, role: "listbox", "aria-label": label, hidden: true });
  const told = el("span", { class: "unseen", role: "status" });
  const input = el("input", {
    id,
    type: "text",
    role: "combobox",
    placeholder,
    maxlength: 512,
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
    input.dataset.set = name; // the arrow keys then show all names, not only those like it
  }

  function close() {
    waiting.abort();
    options.hidden = true;
    put(options);
    found = [];
    mark(-1);
    input.setAttribute("aria-expanded", "false");
  }

  function mark(place) {
    active = place;
    [...options.children].forEach((option, i) => {
      if (option.role !== "option") return;
      option.setAttribute("aria-selected", String(i === place));
      if (i === place) option.scrollIntoView({ block: "nearest" });
    });
    if (place < 0) input.removeAttribute("aria-activedescendant");
    else input.setAttribute("aria-activedescendant", options.children[place].id);
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
        id: fresh("option"),
        role: "option",
        "aria-selected": "false",
        // On mousedown, so that the field keeps its focus.
        onmousedown: (event) => (event.preventDefault(), take(name)),
      },
      el("span", { class: "option-name" }, name, gloss && el("small", {}, gloss)),
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
      return; // given up for a newer text, or the service is gone, which the answers will say
    }
    if (signal.aborted || document.activeElement !== input) return;
    put(options, found.map(option));
    if (found.length === 0)
      put(options, el("li", { class: "none", role: "presentation" }, "No name like this"));
    options.hidden = false;
    input.setAttribute("aria-expanded", String(found.length > 0));
    told.textContent = found.length ? `${count(found.length)} suggestions` : "No name like this";
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
      close(); // and the form takes what was typed
    }
  });

  return {
    element: el(
      "div",
      { class: "field" },
      el("label", { for: id }, label),
      el("div", { class: "box" }, input, options),
      told,
    ),
    input,
    /** A name as it is, spaces around it included, or what was typed without them. */
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
