// What somebody sees on a page of the console, and does there. Things are found as people find them: by the words on them.
(() => {
  const plain = (text) => text.replaceAll("\u202f", " ").replace(/\n\s*\n/g, "\n").trim();
  const isSeen = (it) => it.checkVisibility();
  const missing = (what, name, all) => {
    const there = [...document.querySelectorAll(all)].filter(isSeen).map((it) => it.innerText.trim());
    throw new Error(`there is no ${what} ${name}, but ${there.join(", ")}`);
  };
  return {
    address: () => location.pathname + location.search,

    heading: () => document.querySelector("h1")?.textContent ?? "",

    /** Who is logged in: a name and a role. */
    who: () => document.querySelector("form.who span")?.innerText ?? "",

    text: (where = "main") => plain(document.querySelector(where)?.innerText ?? ""),

    /** What happened, what is wrong, or what to look at. */
    notes: () => [...document.querySelectorAll("main .note")].filter(isSeen).map((it) => plain(it.innerText)),

    /** The rows of a table, each by the names of the columns; none if there is no such table. */
    rows(caption) {
      const table = [...document.querySelectorAll("table")].find((it) => it.caption?.textContent === caption);
      const row = (row) => [...row.cells].map((cell) => [cell.dataset.name, plain(cell.innerText)]);
      return [...(table?.tBodies[0].rows ?? [])].map((it) => Object.fromEntries(row(it)));
    },

    /** The number that is to be seen first under a name, and what stands below it. */
    tile(name) {
      const tile = [...document.querySelectorAll(".tile")].find((it) => it.querySelector(".name").textContent === name);
      return tile && { value: plain(tile.querySelector(".value").innerText), more: plain(tile.querySelector(".more").innerText) };
    },

    /** What stands behind a name in a list of facts. */
    fact(name) {
      const term = [...document.querySelectorAll("dt")].find((it) => it.textContent === name);
      return term && plain(term.nextElementSibling.innerText);
    },

    /** What became of devices: counts by outcome, and the reasons of each. */
    outcomes: () =>
      [...document.querySelectorAll(".legend > li")].map((it) => ({
        name: it.querySelector("strong").textContent,
        count: Number(it.querySelector(":scope > .n").firstChild.textContent.replace(/\D/g, "")),
        reasons: [...it.querySelectorAll(".reasons li")].map((reason) => plain(reason.textContent)),
      })),

    /** The parts of a page that have a heading, as text by this heading. */
    sections() {
      const sections = [...document.querySelectorAll("main section")].filter((it) => it.querySelector("h2, h3"));
      return Object.fromEntries(sections.map((it) => [plain(it.querySelector("h2, h3").textContent), plain(it.innerText)]));
    },

    /** The verdict on a device and an event, and the sentences that give the reasons. */
    why: () => ({
      verdict: plain(document.querySelector(".verdict strong").textContent),
      reasons: [...document.querySelectorAll(".why .bullets li")].map((it) => plain(it.innerText)),
    }),

    /** Buttons of forms that change something; those that only look have the method GET. */
    acting: () => [...document.querySelectorAll("main form[method=post] button")].map((it) => it.innerText.trim()),

    /** Writes into the field with this label. */
    fill(label, text) {
      const labels = [...document.querySelectorAll("label")].filter((it) => it.querySelector("span").textContent === label);
      const field = labels.filter(isSeen)[0]?.control ?? missing("field", label, "label span");
      field.value = text;
    },

    /** Presses the button or follows the link with this name. */
    press(name) {
      const all = [...document.querySelectorAll("button, a")].filter(isSeen);
      const found = all.find((it) => it.innerText.trim() === name) ?? missing("button or link", name, "button, a");
      window.wasLeft = true;
      found.click();
    },

    /** Opens what is folded under these words. */
    unfold(name) {
      const folded = [...document.querySelectorAll("details")].find((it) => it.querySelector("summary").textContent === name);
      return ((folded ?? missing("folded part", name, "summary")).open = true);
    },

    /** Whether the page is there as a whole, and is not the one that somebody has just left. */
    isThere: () => document.readyState === "complete" && !window.wasLeft,

    /** Keeps in mind that this page was seen. */
    remember: () => (window.wasSeen = true),

    /** Whether the page is still the one that was to be remembered: it was not loaded again. */
    isSame: () => window.wasSeen === true,

    /** Sends what the form of an action sends, without its button. What the page says then. */
    async forge(action, words) {
      const token = document.querySelector("input[name=token]").value;
      const answer = await fetch(`/console/act/${action}`, { method: "POST", body: new URLSearchParams({ token, ...words }) });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      return { status: answer.status, text: page.querySelector("main").textContent };
    },

    /** The same page for programs. */
    async json() {
      const link = [...document.querySelectorAll("a")].find((it) => it.textContent === "This page as JSON");
      return (await fetch(link.href)).json();
    },
  };
})()
