// Ranks the sections of all pages for a question, in the page: nothing is sent.
//
// Words are weighed as in BM25. A page need not have every word of the question, so that
// whole sentences find something; words in titles count more. The text of each page is in
// search-pages.js, which only the search page loads.
(() => {
  "use strict";
  const form = document.querySelector("form.search-here");
  if (!form) return;

  const COMMON = new Set(
    ("a an and are as at be been by can could do does for from had has have how i if in into is it its me my of on " +
      "or should so that the their then there they this to was we were what when where which while who why will with " +
      "would you your not no does did use using used").split(" ")
  );
  const SAME = {
    gpus: "gpu", tpus: "tpu", ddp: "distributeddataparallel", oom: "memory", hang: "hang", hung: "hang",
    stuck: "hang", freezes: "hang", freeze: "hang", deadlock: "hang", crashed: "crash", died: "die", dies: "die", dead: "die",
    killed: "die", slower: "slow", slowly: "slow", resume: "continue", colab: "notebook", jupyter: "notebook",
    k8s: "kubernetes", ckpt: "checkpoint", gradients: "gradient", setup: "install", nan: "nan",
  };

  // Strips the endings that English words change by; the same for pages and questions.
  const stem = (word) => {
    if (SAME[word]) return SAME[word];
    let cut = word;
    if (cut.length > 4) cut = cut.replace(/(ies)$/, "y").replace(/(sses)$/, "ss");
    if (cut.length > 3 && /[^s]s$/.test(cut)) cut = cut.slice(0, -1);
    if (cut.length > 5) cut = cut.replace(/(ing|ed)$/, "");
    if (cut.length > 3) cut = cut.replace(/e$/, "");
    return SAME[cut] || cut;
  };
  const words = (text) => {
    const found = [];
    for (const [whole] of text.matchAll(/[A-Za-z0-9_.]+/g)) {
      const name = whole.replace(/^\.+|\.+$/g, "").toLowerCase();
      if (!name) continue;
      const parts = new Set([name, ...name.split(/[._]/)]);
      // DistributedDataParallel is also found by its parts.
      if (/[a-z][A-Z]/.test(whole)) {
        whole.replace(/([a-z0-9])([A-Z])/g, "$1 $2").split(/[\s._]+/).forEach((p) => parts.add(p.toLowerCase()));
      }
      for (const part of parts) if (part && !COMMON.has(part)) found.push(stem(part));
    }
    return found;
  };

  const build = (pages) => {
    const entries = [];
    const seen = new Map();
    for (const { page, sections } of pages) {
      sections.forEach((section, place) => {
        const counts = new Map();
        const add = (text, weight) => {
          for (const word of words(text)) counts.set(word, (counts.get(word) || 0) + weight);
        };
        add(section.title, place === 0 ? 8 : 5);
        if (place) add(sections[0].title, 1.5);
        add(page.replace(/[/-]/g, " "), place === 0 ? 3 : 1);
        add(section.text, 1);
        let length = 0;
        for (const [word, count] of counts) {
          length += count;
          seen.set(word, (seen.get(word) || 0) + 1);
        }
        entries.push({ page, section, counts, length, place, top: sections[0].title, titled: words(section.title) });
      });
    }
    const mean = entries.reduce((sum, entry) => sum + entry.length, 0) / Math.max(1, entries.length);
    return { entries, seen, mean };
  };

  const rank = ({ entries, seen, mean }, question) => {
    const asked = [...new Set(words(question))];
    const phrase = question.trim().toLowerCase();
    const best = new Map();
    for (const entry of entries) {
      let score = 0;
      let found = 0;
      for (const word of asked) {
        const count = entry.counts.get(word);
        if (!count) continue;
        found += 1;
        const rare = Math.log(1 + (entries.length - seen.get(word) + 0.5) / (seen.get(word) + 0.5));
        score += (rare * count * 2.4) / (count + 1.4 * (0.4 + (0.6 * entry.length) / mean));
      }
      if (!score) continue;
      score *= 0.4 + (0.6 * found) / asked.length;
      if (phrase.length > 6 && entry.section.text.toLowerCase().includes(phrase)) score *= 1.4;
      if (entry.section.title.toLowerCase().includes(phrase)) score *= 1.3;
      // A page that is about nothing else comes first.
      if (!entry.place) score *= 1 + 0.6 * entry.titled.filter((word) => asked.includes(word)).length / Math.max(1, entry.titled.length);
      if (/^(decisions\/|changelog|contributing|security|reference\/api\/unisono\.compat)/.test(entry.page)) score *= 0.6;
      // A class has a page of its own; pages that explain come before it. A question of
      // several words is about a task, not about a name.
      else if (entry.page.startsWith("reference/api/")) score *= /\s/.test(phrase) ? 0.7 : 0.85;
      const kept = best.get(entry.page);
      if (!kept || kept.score < score) best.set(entry.page, { entry, score });
    }
    return [...best.values()].sort((a, b) => b.score - a.score).slice(0, 20);
  };

  const excerpt = (text, asked) => {
    const wanted = new Set(asked);
    const pieces = text.split(/(?<=[.:;]) /);
    let chosen = 0;
    let most = -1;
    pieces.forEach((piece, number) => {
      const count = words(piece).filter((word) => wanted.has(word)).length;
      if (count > most) [chosen, most] = [number, count];
    });
    const said = pieces.slice(chosen, chosen + 2).join(" ");
    return said.length > 220 ? said.slice(0, 220) + "…" : said;
  };

  const show = (index, question) => {
    const list = document.getElementById("search-hits");
    const hits = question.trim() ? rank(index, question) : [];
    list.replaceChildren(
      ...hits.map(({ entry }) => {
        const item = document.createElement("li");
        const link = document.createElement("a");
        const anchor = entry.place && entry.section.anchor ? "#" + entry.section.anchor : "";
        link.href = entry.page + ".html" + anchor;
        link.dataset.page = entry.page;
        link.textContent = entry.place ? `${entry.top} › ${entry.section.title}` : entry.section.title;
        const told = document.createElement("p");
        told.textContent = excerpt(entry.section.text, words(question));
        item.append(link, told);
        return item;
      })
    );
    document.getElementById("search-count").textContent = question.trim()
      ? `${hits.length} ${hits.length === 1 ? "page" : "pages"} for “${question}”`
      : "";
  };

  const script = document.createElement("script");
  script.src = new URL("search-pages.js", document.querySelector('script[src*="search.js"]').src).href;
  script.onload = () => {
    const index = build(window.searchPages);
    const input = document.getElementById("search-words");
    input.value = new URLSearchParams(location.search).get("q") || "";
    show(index, input.value);
    document.documentElement.dataset.searchReady = "yes";
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      history.replaceState(null, "", "?q=" + encodeURIComponent(input.value));
      show(index, input.value);
    });
    input.addEventListener("input", () => show(index, input.value));
  };
  document.head.append(script);
})();
