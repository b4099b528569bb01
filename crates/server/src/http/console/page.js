// Elements of the page, messages and dialogs. Text of the server enters the page as text, never as markup.
"use strict";

export const $ = (id) => document.getElementById(id);

export function el(tag, options = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || value === null) continue;
    if (name === "class") node.className = value;
    else if (name === "on") for (const [event, run] of Object.entries(value)) node.addEventListener(event, run);
    else if (name in node && name !== "list") node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function fill(place, ...children) {
  (typeof place === "string" ? $(place) : place).replaceChildren(...children);
}

export function button(text, style, run) {
  return el("button", { type: "button", class: style, on: { click: run } }, text);
}

let toastTimer = 0;
export function toast(text) {
  $("toast").textContent = text;
  $("toast").hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { $("toast").hidden = true; }, 5000);
}

// Runs `work` and shows its error.
export async function guarded(work) {
  try { return await work(); } catch (error) { toast(error.message); return undefined; }
}

// A row of buttons of which one is chosen. Arrow keys move the choice.
export function segments(id, choices, chosen, change) {
  const buttons = choices.map(([value, text]) => {
    const one = el("button", { type: "button", role: "radio" }, text);
    one.addEventListener("click", () => pick(value));
    return [value, one];
  });
  function pick(value, isFirst) {
    for (const [other, one] of buttons) {
      one.setAttribute("aria-checked", String(other === value));
      one.tabIndex = other === value ? 0 : -1;
    }
    chosen = value;
    if (!isFirst) change(value);
  }
  $(id).addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = buttons.findIndex(([value]) => value === chosen);
    const [value, one] = buttons[(at + step + buttons.length) % buttons.length];
    one.focus();
    pick(value);
  });
  fill(id, ...buttons.map(([, one]) => one));
  pick(chosen, true);
}

/* ---- dialogs ---- */

// Opens the dialog with a form. `submit` gets the values of the fields; the dialog stays open if it throws.
// Fields: {name, label, value, type, options, rows, required, help}. Resolves to true after a submit that succeeded.
export function ask({ title, text, fields = [], action, danger, submit }) {
  const dialog = $("dialog");
  const error = el("p", { class: "problem", role: "alert" });
  const inputs = new Map();
  const rows = fields.map((field) => {
    const input = inputOf(field);
    inputs.set(field.name, input);
    const label = field.type === "checkbox"
      ? el("label", { class: "check" }, input, el("span", {}, field.label))
      : el("label", { class: "field" }, el("span", {}, field.label), input);
    return el("div", { class: "entry" }, label, field.help ? el("p", { class: "note" }, field.help) : null);
  });
  return new Promise((resolve) => {
    let isDone = false;
    const go = el("button", { class: danger ? "danger sure" : "main" }, action);
    const cancel = button("Cancel", "", () => dialog.close());
    const form = el("form", { on: { submit: async (event) => {
      event.preventDefault();
      const values = {};
      for (const [name, input] of inputs) values[name] = input.type === "checkbox" ? input.checked : input.value;
      go.disabled = true;
      error.textContent = "";
      try {
        await submit(values);
        isDone = true;
        dialog.close();
      } catch (problem) {
        error.textContent = problem.message;
      }
      go.disabled = false;
    } } },
    el("h2", { id: "dialog-title" }, title), text ? el("p", { class: "said" }, text) : null, ...rows, error,
    el("div", { class: "actions" }, cancel, go));
    fill(dialog, form);
    const closed = () => {
      // The event of a dialog that closed just before this one opened comes late.
      if (dialog.open && form.isConnected) return;
      dialog.removeEventListener("close", closed);
      form.remove();
      resolve(isDone);
    };
    dialog.addEventListener("close", closed);
    dialog.showModal();
    const first = danger ? cancel : form.querySelector("input, select, textarea") || go;
    first.focus();
    if (first.select) first.select();
  });
}

function inputOf(field) {
  if (field.options) {
    const input = el("select", { on: field.change ? { change: () => field.change(input.value) } : {} },
      ...field.options.map(([value, text]) => el("option", { value }, text)));
    input.value = field.value ?? field.options[0][0];
    return input;
  }
  if (field.rows) return el("textarea", { rows: field.rows, value: field.value ?? "", required: field.required, spellcheck: false });
  const options = { type: field.type || "text", required: field.required, autocomplete: "off", spellcheck: false };
  if (field.type === "checkbox") return el("input", { ...options, checked: Boolean(field.value) });
  return el("input", { ...options, value: field.value ?? "", min: field.min, step: field.step });
}

// Asks before an action that cannot be undone.
export function confirm({ title, text, action, submit }) {
  return ask({ title, text: `${text} This cannot be undone.`, action, danger: true, submit });
}
