"use strict";
// the form is answered while it is filled in
(() => {
  const form = () => document.getElementById("new");
  let changes = 0, asked = 0;
  document.addEventListener("input", () => (changes += 1));
  document.addEventListener("htmx:before:request", () => (asked = changes));
  const cannot = (why) => {
    const said = document.createElement("p");
    said.className = "bad";
    said.textContent = why + " The form may show an earlier choice.";
    document.querySelectorAll("#summary > .bad").forEach((other) => other.remove());
    document.getElementById("summary").prepend(said);
  };
  document.addEventListener("htmx:before:swap", (event) => {
    const { status } = event.detail.ctx.response;
    if (status !== 200) cannot(`The server does not answer the form (${status}).`);
    // an answer to what has changed meanwhile is not shown: another one is on its way
    if (status !== 200 || asked !== changes) event.preventDefault();
  });
  document.addEventListener("htmx:error", () => cannot("The server does not answer."));
  // attributes have changed in place: what is checked follows them
  document.addEventListener("htmx:after:swap", () => {
    document.querySelectorAll("#new input").forEach((input) => (input.checked = input.defaultChecked));
  });
  // a browser may have filled in what was there before; a moment later all is set up
  addEventListener("pageshow", () => setTimeout(() => {
    const differs = (input) => input.value !== input.defaultValue || input.checked !== input.defaultChecked;
    if ([...form().querySelectorAll("input")].some(differs)) form().dispatchEvent(new Event("input", { bubbles: true }));
  }, 300));
})();
