'use strict';
(() => {
  const root = document.documentElement;
  const all = (selector, from = document) => Array.from(from.querySelectorAll(selector));
  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  const draw = (tag, attributes, ...children) => {
    const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  root.classList.add('on');

  // Light and dark.
  const theme = document.getElementById('theme');
  theme.addEventListener('click', () => {
    const dark = root.dataset.theme ? root.dataset.theme === 'dark' :
        matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = dark ? 'light' : 'dark';
  });

  // What is pointed at, or has the focus, says what it is.
  const tip = make('div', {id: 'tip', role: 'tooltip', hidden: ''});
  document.body.append(tip);
  const teller = target => target.closest && target.closest('[data-tip],[data-help],.pt[aria-label]');
  const textOf = node => node.dataset.tip || node.dataset.help || node.getAttribute('aria-label');
  let told = null;
  const tell = node => {
    if (told === node) return;
    if (told) told.removeAttribute('aria-describedby');
    told = node;
    tip.hidden = !node;
    if (!node) return;
    tip.textContent = textOf(node);
    if (!node.getAttribute('aria-label')) node.setAttribute('aria-describedby', 'tip');
    const box = node.getBoundingClientRect(), own = tip.getBoundingClientRect();
    const left = Math.min(Math.max(8, box.left + box.width / 2 - own.width / 2), innerWidth - own.width - 8);
    const above = box.top - own.height - 8;
    tip.style.left = left + 'px';
    tip.style.top = (above > 4 ? above : box.bottom + 8) + 'px';
  };
  document.addEventListener('pointerover', event => tell(teller(event.target)));
  document.addEventListener('focusin', event => tell(teller(event.target)));
  document.addEventListener('focusout', () => tell(null));
  document.addEventListener('scroll', () => tell(null), {passive: true});
  document.addEventListener('keydown', event => {
    if (event.key !== 'Escape') return;
    tell(null);
    all('.cols[open]').forEach(node => { node.open = false; });
  });

  // One stop for the tab key in a figure or table; arrows go on from there.
  const rove = (container, members, step) => {
    if (!members.length) return;
    members.forEach((node, i) => { node.tabIndex = i ? -1 : 0; });
    container.addEventListener('keydown', event => {
      const at = members.indexOf(document.activeElement);
      if (at < 0) return;
      const to = step(event.key, at, members);
      if (to === undefined || !members[to]) return;
      event.preventDefault();
      members[at].tabIndex = -1;
      members[to].tabIndex = 0;
      members[to].focus();
    });
  };
  const visible = node => node.getClientRects().length > 0;
  const along = (members, at, by) => {
    let to = at + by;
    while (members[to] && !visible(members[to])) to += by;
    return to;
  };

  // What scrolls can be scrolled by keys, by a single pixel too. Windows become narrow, columns come
  // and go: each change of a size asks anew. What is not laid out has no size, and asks when it is.
  const reach = node => {
    const scrolls = node.scrollWidth > node.clientWidth || node.scrollHeight > node.clientHeight;
    if (scrolls && !node.querySelector('a,button,[tabindex="0"]')) node.tabIndex = 0;
    else if (node !== document.activeElement) node.removeAttribute('tabindex');
  };
  const scrollers = '.scroll,pre.code,.pictures';
  const sizes = new ResizeObserver(entries =>
    new Set(entries.map(entry => entry.target.closest(scrollers))).forEach(reach));
  const reachable = node => {
    sizes.observe(node);
    if (node.firstElementChild) sizes.observe(node.firstElementChild);
  };

  // Rows and the marks that stand for them.
  const marks = new Map();
  const equip = part => {
    for (const figure of all('svg.xy', part)) {
      rove(figure, all('.pt[aria-label]', figure), (key, at, members) =>
        key === 'ArrowRight' || key === 'ArrowDown' ? along(members, at, 1) :
        key === 'ArrowLeft' || key === 'ArrowUp' ? along(members, at, -1) :
        key === 'Home' ? along(members, -1, 1) : key === 'End' ? along(members, members.length, -1) : undefined);
    }
    for (const mark of all('a.pt', part)) {
      const id = mark.getAttribute('href').slice(1);
      if (!marks.has(id)) marks.set(id, []);
      marks.get(id).push(mark);
    }
    all('.scroll,pre.code', part).forEach(reachable);
  };
  equip(document);

  // Maps and charts in a fold stand there as for readers without scripts, parsed when they are
  // wanted.
  const fill = fold => {
    const later = fold.querySelector(':scope>noscript');
    if (!later) return;
    const body = make('div');
    body.innerHTML = later.textContent;
    later.replaceWith(body);
    equip(body);
  };
  const near = new IntersectionObserver(entries => {
    for (const {target, isIntersecting} of entries) {
      if (!isIntersecting || target.open === false) continue;
      near.unobserve(target);
      fill(target);
    }
  }, {rootMargin: '800px 0px'});
  const folds = all('details.maps,.later');
  for (const fold of folds) {
    near.observe(fold);
    fold.addEventListener('toggle', () => {
      if (!fold.open) return;
      near.unobserve(fold);
      near.observe(fold);
    });
  }

  const heat = (row, on) => (marks.get(row.id) || []).forEach(mark => mark.classList.toggle('hot', on));

  // A cell's worth in a file of values.
  // A text that a spreadsheet would take for a formula gets a mark before it; numbers stay numbers.
  const number = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i;
  const harmless = text => /^[=+\-@\t\r]/.test(text) && !number.test(text) ? "'" + text : text;
  const quoted = text => {
    const safe = harmless(String(text));
    return /[",\n\r]/.test(safe) ? '"' + safe.replaceAll('"', '""') + '"' : safe;
  };
  const save = (name, lines) => {
    const link = make('a', {download: name + '.csv',
      href: URL.createObjectURL(new Blob([lines.join('\n') + '\n'], {type: 'text/csv'}))});
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  const plain = node => node.textContent.trim().replace(/\s+/g, ' ');
  const csv = (table, shown) => {
    const heads = all('thead th', table);
    const title = head => all('.grp,.ttl', head).map(plain).join(' ') || plain(head);
    // A column has a value, and the ends of its interval, a verdict and a note where any cell has.
    const body = Array.from(table.tBodies[0].rows);
    const parts = heads.map((head, i) => {
      const cells = body.map(row => row.cells[i]), any = name => cells.some(cell => cell.dataset[name]);
      return [['', cell => {
        const value = cell.dataset.csv !== undefined ? cell.dataset.csv : cell.dataset.v;
        return value !== undefined && !cell.classList.contains('c-budget') ? value :
          cell.classList.contains('nil') ? '' : cell.querySelector('svg.spark') ?
            cell.querySelector('svg.spark').getAttribute('aria-label') : plain(cell);
      }],
      any('low') && [' low', cell => cell.dataset.low || ''],
      any('high') && [' high', cell => cell.dataset.high || ''],
      /c-delta/.test(head.className) && [' verdict', cell => {
        const mark = cell.querySelector('.v');
        return mark ? plain(mark).replace(/^\S+ /, '') : '';
      }],
      any('note') && [' note', cell => cell.dataset.note || '']].filter(Boolean);
    });
    const lines = [heads.flatMap((head, i) => parts[i].map(([name]) => title(head) + name)).map(quoted).join(',')];
    for (const row of table.tBodies[0].rows) {
      if (!shown(row)) continue;
      lines.push(Array.from(row.cells).flatMap((cell, i) => parts[i].map(([, of]) => of(cell))).map(quoted).join(','));
    }
    save(table.dataset.name || 'table', lines);
  };

  // What figures show, as it stands in the page.
  for (const button of all('button.download')) {
    button.addEventListener('click', () => {
      const {columns, rows} = JSON.parse(document.getElementById('tables-data').textContent)[button.dataset.table];
      save(button.dataset.table, [columns, ...rows].map(row => row.map(quoted).join(',')));
    });
  }

  // Families: one class at the root hides rows, marks, lines and maps.
  for (const box of all('.chips input')) {
    root.classList.toggle('no-' + box.value, !box.checked);
    box.addEventListener('change', () => {
      root.classList.toggle('no-' + box.value, !box.checked);
      all('.chips input').forEach(other => { if (other.value === box.value) other.checked = box.checked; });
      document.dispatchEvent(new Event('familieschange'));
    });
  }

  for (const table of all('table.sortable')) {
    const body = table.tBodies[0], rows = Array.from(body.rows), heads = all('thead th', table);
    const words = rows.map(row => plain(row).toLowerCase());
    const controls = document.querySelector('.controls[data-for="' + table.id + '"]');
    const count = controls.querySelector('.count');
    const shown = row => !row.hidden && !root.classList.contains('no-' + row.dataset.f) &&
        !(row.classList.contains('variant') && root.classList.contains('no-variants'));
    // Of a long table the first rows are shown until somebody asks for others.
    const rest = make('button', {type: 'button', class: 'rest'}, 'Show all ' + rows.length + ' rows');
    const unroll = () => {
      table.classList.add('all');
      rest.remove();
    };
    rest.addEventListener('click', unroll);
    if (table.classList.contains('long')) table.parentNode.after(rest);
    const say = () => {
      const left = rows.filter(shown).length;
      count.textContent = left === rows.length ? left + ' rows' : left + ' of ' + rows.length + ' rows';
    };

    // Sorting: numbers by their value, texts by their letters, what is missing last.
    const key = (row, column) => {
      const cell = row.cells[column];
      if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
      const text = plain(cell);
      return cell.classList.contains('nil') || text === '' ? null : text.toLowerCase();
    };
    const sort = (column, descending) => {
      const keys = new Map(rows.map(row => [row, key(row, column)]));
      const sign = descending ? -1 : 1;
      rows.sort((a, b) => {
        const x = keys.get(a), y = keys.get(b);
        if (x === null || y === null) return x === y ? 0 : x === null ? 1 : -1;
        if (typeof x === 'number' && typeof y === 'number') return sign * (x - y);
        return sign * String(x).localeCompare(String(y), 'en', {numeric: true});
      });
      body.append(...rows);
      heads.forEach((head, i) => {
        if (i === column) head.setAttribute('aria-sort', descending ? 'descending' : 'ascending');
        else head.removeAttribute('aria-sort');
      });
    };
    heads.forEach((head, column) => {
      const button = make('button', {type: 'button'});
      button.append(...head.childNodes);
      head.append(button);
      // Headings with buttons in them are not repeated on every page of paper.
      addEventListener('beforeprint', () => {
        head.append(...button.childNodes);
        button.remove();
      });
      addEventListener('afterprint', () => {
        button.append(...head.childNodes);
        head.append(button);
      });
      if (head.dataset.help) {
        button.dataset.help = head.dataset.help;
        delete head.dataset.help;
      }
      button.addEventListener('click', () => {
        const now = head.getAttribute('aria-sort');
        // Scores begin with the best, everything else with the least.
        sort(column, now ? now === 'ascending' : /c-(score|delta)/.test(head.className));
      });
    });

    // Columns.
    const column = new Map(heads.map((head, i) => [/c-(\S+)/.exec(head.className)[1], i]));
    const show = (name, on) => {
      const i = column.get(name);
      for (const row of table.rows) row.cells[i].hidden = !on;
    };
    for (const box of all('.cols input', controls)) {
      if (!box.checked) show(box.value, false);
      box.addEventListener('change', () => show(box.value, box.checked));
    }

    // Search: every word must be in the row.
    const search = controls.querySelector('.search');
    const filter = () => {
      unroll();
      const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const texts = new Map(rows.map(row => [row, row.dataset.words]));
      rows.forEach(row => { row.hidden = !wanted.every(word => texts.get(row).includes(word)); });
      say();
    };
    rows.forEach((row, i) => { row.dataset.words = words[i]; });
    search.addEventListener('input', filter);
    controls.querySelector('.csv').addEventListener('click', () => csv(table, shown));
    document.addEventListener('familieschange', () => {
      unroll();
      say();
    });
    body.addEventListener('pointerover', event => {
      const row = event.target.closest('tr');
      if (row) heat(row, true);
    });
    body.addEventListener('pointerout', event => {
      const row = event.target.closest('tr');
      if (row) heat(row, false);
    });

    const cells = () => all('td[data-tip]', body);
    let stop = cells()[0];
    if (stop) stop.tabIndex = 0;
    body.addEventListener('keydown', event => {
      const cell = event.target;
      if (cell.parentNode.parentNode !== body) return;
      const dx = {ArrowLeft: -1, ArrowRight: 1}[event.key], dy = {ArrowUp: -1, ArrowDown: 1}[event.key];
      let to = null;
      if (dx) {
        to = cell;
        do to = dx < 0 ? to.previousElementSibling : to.nextElementSibling; while (to && (to.hidden || !to.dataset.tip));
      } else if (dy) {
        let row = cell.parentNode;
        do row = dy < 0 ? row.previousElementSibling : row.nextElementSibling; while (row && !visible(row));
        to = row && row.cells[cell.cellIndex];
      }
      if (!to) return;
      event.preventDefault();
      stop.removeAttribute('tabindex');
      to.tabIndex = 0;
      to.focus();
      stop = to;
    });
    say();
    // A link to a row shows it, whatever was filtered.
    addEventListener('hashchange', () => {
      const row = document.getElementById(location.hash.slice(1));
      if (!row || !body.contains(row) || visible(row)) return;
      search.value = '';
      filter();
      if (!visible(row)) all('.chips input').forEach(box => { if (!box.checked) box.click(); });
      row.scrollIntoView({block: 'center'});
    });
  }

  // Where the reader is.
  const links = new Map(all('nav.top a').map(link => [link.getAttribute('href').slice(1), link]));
  // Above the first section no link is marked. In a narrow window the bar moves to the marked one.
  const sections = all('main>section'), met = new Set();
  const watch = new IntersectionObserver(entries => {
    for (const {target, isIntersecting} of entries) {
      if (isIntersecting) met.add(target);
      else met.delete(target);
    }
    const here = sections.find(section => met.has(section));
    if (!here && sections[0].getBoundingClientRect().top < 60) return;
    links.forEach((link, id) => link.classList.toggle('here', id === here?.id));
    const link = links.get(here?.id);
    if (!link) return;
    const bar = link.parentElement;
    bar.scrollLeft = link.offsetLeft - (bar.clientWidth - link.offsetWidth) / 2;
  }, {rootMargin: '-60px 0px -75% 0px'});
  sections.forEach(section => watch.observe(section));

  // On paper nothing can be opened, and rows stand as they were sorted and found.
  let closed = [];
  addEventListener('beforeprint', () => {
    folds.forEach(fill);
    for (const table of all('table[data-of]')) {
      const twins = new Map(all('tr[data-row]', table).map(row => [row.dataset.row, row]));
      for (const row of document.getElementById(table.dataset.of).tBodies[0].rows) {
        const twin = twins.get(row.id);
        twin.hidden = row.hidden;
        twin.parentNode.append(twin);
      }
    }
    closed = all('details.maps,details.brief').filter(node => !node.open);
    closed.forEach(node => { node.open = true; });
  });
  addEventListener('afterprint', () => closed.forEach(node => { node.open = false; }));

  // Samples.
  const source = document.getElementById('samples-data');
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const place = document.getElementById('samples-ui'), still = document.getElementById('samples-static');
  const option = (value, text) => make('option', {value}, text);
  const choose = (label, options) => {
    const select = make('select', {}, ...options);
    return [make('label', {}, label + ' ', select), select];
  };
  const find = make('input', {type: 'search', placeholder: 'any words'});
  const [taskLabel, task] = choose('Task', [option('', 'all'), ...new Set(data.questions.map(q => q[0]))].map(
      item => typeof item === 'string' ? option(item, item) : item));
  const [boardLabel, board] = choose('Model', [option('', 'all'), ...data.boards.map((title, i) => option(i, title))]);
  const [rowLabel, row] = choose('Method', [option('', 'all'), ...Array.from(new Set(data.rows.map(r => r[1])), name => option(name, name))]);
  const [outcomeLabel, outcome] = choose('Outcome', [option('', 'all'), ...data.outcomes.map((o, i) => option(i, o))]);
  outcome.value = '0';
  const count = make('output', {class: 'count'});
  const list = make('div', {class: 'samples'}), more = make('button', {type: 'button'}, 'Show more');
  const download = make('button', {type: 'button', class: 'csv'}, 'Download CSV');
  place.append(make('div', {class: 'pick'}, make('label', {}, 'Search ', find), ...data.boards.length > 1 ? [boardLabel] : [], taskLabel, rowLabel, outcomeLabel, download, count), list, more);
  still.remove();

  const percent = share => share === null ? '–' : (100 * share).toFixed(0) + '%';
  const strip = kept => {
    const svg = draw('svg', {width: 11 * kept.length, height: 14, role: 'img',
      'aria-label': 'Kept of the answer, by layer: ' + kept.map((share, i) => i + ': ' + percent(share)).join(', ')});
    kept.forEach((share, i) => svg.append(draw('rect', {x: 11 * i, y: 0, width: 10, height: 14,
      class: share === null ? 'none' : 'a' + Math.min(9, Math.floor(share * 10))})));
    const cell = make('td', {'data-tip': svg.getAttribute('aria-label')}, svg);
    return cell;
  };
  const depthBar = depth => {
    const svg = draw('svg', {class: 'where', width: 124, height: 10, role: 'img', 'aria-label': 'The answer stands at ' + percent(depth) + ' of the context'});
    svg.append(draw('rect', {class: 'bg', x: 2, y: 3, width: 120, height: 4}), draw('rect', {class: 'fg', x: 120 * depth, y: 0, width: 4, height: 10}));
    return svg;
  };

  // Pictures under a veil that is darker where fewer heads and layers hold a patch.
  const darkest = 0.8;  // as picture_sheet.cpp has it
  const level = digit => parseInt(digit, 16) / 15;
  const mean = digits => Array.from(digits).reduce((sum, digit) => sum + level(digit), 0) / (digits.length || 1);
  // The digits of each grid of each picture; one digit stands for all.
  const cut = (sight, patches) => {
    let at = 0;
    return sight.map(([, , , , grids]) => grids.map(([rows, columns]) => {
      const cells = rows * columns;
      at += cells;
      return patches.length === 1 ? patches.repeat(cells) : patches.slice(at - cells, at);
    }));
  };
  const gallery = sight => {
    const views = [];
    const node = make('div', {class: sight.some(shown => shown[2] >= 0) ? 'pictures strip' : 'pictures'});
    sight.forEach(([number, name, frame, answer, grids], i) => grids.forEach(([rows, columns], g) => {
      if (!rows || !columns) return;
      const [bytes, width, height] = data.pictures[number];
      const veil = make('canvas', {width: columns, height: rows}), share = make('span', {class: 'soft'});
      const image = make('img', {src: 'data:image/jpeg;base64,' + bytes, width, height, loading: 'lazy',
        alt: (frame >= 0 ? 'Frame ' + frame : 'Picture ' + (i + 1)) + ', ' + name + (answer ? ', which holds the answer' : '')});
      const title = (frame >= 0 ? 'frame ' + frame : i + 1) + (g ? ', tiles' : '') + ' ';
      const figure = make('figure', {class: answer ? 'pic answer' : 'pic', 'data-tip': name},
        make('div', {class: 'seen'}, image, veil), make('figcaption', {}, title, share));
      node.append(figure);
      views.push(digits => {
        const context = veil.getContext('2d', {willReadFrequently: true}), pixels = context.createImageData(columns, rows);
        Array.from(digits[i][g], (digit, cell) => { pixels.data[4 * cell + 3] = 255 * darkest * (1 - level(digit)); });
        context.putImageData(pixels, 0, 0);
        share.textContent = percent(mean(digits[i][g]));
        figure.dataset.tip = name + ': ' + share.textContent + ' kept';
      });
    }));
    return [node, digits => views.forEach(draw => draw(digits))];
  };
  // How much of each picture an answer's cache held, as bars.
  const looks = digits => {
    const wide = digits.length > 24 ? 4 : 8, shares = digits.map(grids => mean(grids.join('')));
    const svg = draw('svg', {width: wide * shares.length, height: 14, 'aria-hidden': 'true'});
    shares.forEach((share, i) => svg.append(draw('rect', {x: wide * i, y: 0, width: wide - 1, height: 14,
      class: 'a' + Math.min(9, Math.floor(share * 10))})));
    return svg;
  };
  const few = 5;  // answers to a question at first
  const bdi = text => make('bdi', {}, text);
  const breakable = name => name.split(/(?<=[_=,./])(?=[^ ])/).flatMap((part, i) => i ? [make('wbr'), part] : [part]);
  // Each text of a sample under its name, where there are several: turns, or reasoning and answer.
  const answered = texts => make('td', {class: 'text'}, ...texts.flatMap(([turn, text, score]) => [
    ...turn ? [make('span', {class: 'turn'}, turn + (score ? ', score ' + score : ''))] : [],
    text ? bdi(text) : make('span', {class: 'soft'}, 'no text')]));
  const joined = texts => texts.map(([turn, text]) => (turn ? turn + ': ' : '') + text.trim()).join('\n');
  const answerRow = (name, score, texts, kept, look) => {
    kept.className += ' kept';
    kept.dataset.label = 'kept';
    return make('tr', {}, make('th', {scope: 'row'}, name),
      make('td', {class: 'n', 'data-label': 'score'}, score), answered(texts), kept, ...look ? [look] : []);
  };
  const article = ([q, answers]) => {
    const [taskName, id, facts, depth, turns, texts, score, , of, sight] = q;
    const model = data.boards.length > 1 ? ', ' + data.boards[of] : '';
    const node = make('article', {class: 'sample'}, make('h3', {class: 'sub'}, id + ' ', make('span', {class: 'soft'}, taskName + model)));
    turns.forEach(([turn, question, excerpt, references], i) => {
      if (question) node.append(make('p', {class: 'q'}, ...turn ? [make('b', {}, turn + ': ')] : [], bdi(question.trim())));
      if (!i && depth !== null) node.append(make('p', {class: 'soft'}, 'The answer stands at ' + percent(depth) + ' of the context ', depthBar(depth)));
      if (excerpt) node.append(make('p', {class: 'excerpt'}, bdi(excerpt)));
      if (references) node.append(make('p', {}, make('b', {}, 'Right: '), bdi(references)));
    });
    const shows = sight.length > 0;
    const head = ['Answer of', 'score', 'Text', 'Kept, by layer', ...shows ? ['Pictures'] : []]
      .map((text, i) => make('th', {scope: 'col', class: i === 1 ? 'n' : ''}, text));
    const [pictures, veil] = shows ? gallery(sight) : [];
    const whose = make('p', {class: 'soft'}, 'What it shows:');
    let pressed = null;
    const look = (name, patches, button) => {
      if (pressed) pressed.setAttribute('aria-pressed', 'false');
      pressed = button;
      button.setAttribute('aria-pressed', 'true');
      whose.replaceChildren('What ', make('b', {}, name), ' kept of the pictures:');
      veil(cut(sight, patches));
    };
    const lookCell = (name, patches) => {
      if (!shows) return null;
      if (!patches) return make('td', {class: 'nil', 'data-label': 'pictures'}, '–');
      const button = make('button', {type: 'button', class: 'look', 'aria-pressed': 'false',
        'aria-label': 'Show what ' + name + ' kept of the pictures'}, looks(cut(sight, patches)));
      button.addEventListener('click', () => look(name, patches, button));
      if (!pressed && name !== 'full cache') look(name, patches, button);
      return make('td', {'data-label': 'pictures'}, button);
    };
    const body = make('tbody', {}, answerRow('full cache', score, texts, make('td', {}, 'everything'), lookCell('full cache', 'f')));
    const add = ([number, , own, text, kept, patches]) => {
      const [target, name] = data.rows[number];
      body.append(answerRow(make('a', {href: '#' + target}, ...breakable(name)), own, text, kept.length ? strip(kept) : make('td', {class: 'nil'}, '–'),
        lookCell(name, patches)));
    };
    answers.slice(0, few).forEach(add);
    if (answers.length > few) {
      const rest = make('button', {type: 'button'}, 'Show ' + (answers.length - few) + ' more answers');
      rest.addEventListener('click', () => { rest.closest('tr').remove(); answers.slice(few).forEach(add); });
      body.append(make('tr', {class: 'rest'}, make('td', {colspan: head.length}, rest)));
    }
    if (shows) {
      node.append(whose, pictures);
      reachable(pictures);
    }
    node.append(make('table', {class: 'plain answers'}, make('thead', {}, make('tr', {}, ...head)), body));
    return node;
  };
  let found = [], shown = 0;
  const page = () => {
    list.append(...found.slice(shown, shown + 12).map(article));
    shown = Math.min(shown + 12, found.length);
    more.hidden = shown >= found.length;
  };
  const select = () => {
    const wanted = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = [];
    let answers = 0;
    for (const q of data.questions) {
      if (task.value && q[0] !== task.value) continue;
      if (board.value !== '' && q[8] !== Number(board.value)) continue;
      const asked = [q[1], ...q[4].flatMap(turn => [turn[1], turn[3]]), ...q[5].map(text => text[1])];
      const some = q[7].filter(a => (row.value === '' || data.rows[a[0]][1] === row.value) &&
        (outcome.value === '' || a[1] === Number(outcome.value)) &&
        (!wanted.length || wanted.every(word => [...asked, ...a[3].map(text => text[1])].some(text => text.toLowerCase().includes(word)))));
      if (!some.length) continue;
      found.push([q, some]);
      answers += some.length;
    }
    count.textContent = answers.toLocaleString('en') + (answers === 1 ? ' answer' : ' answers') + ' to ' + found.length +
        (found.length === 1 ? ' question' : ' questions');
    list.replaceChildren();
    shown = 0;
    page();
  };
  for (const node of [find, board, task, row, outcome]) node.addEventListener('input', select);
  more.addEventListener('click', page);
  download.addEventListener('click', () => {
    const lines = ['model,task,sample,method,outcome,score,full cache score,question,right,answer,full cache answer,kept by layer'];
    for (const [q, answers] of found) {
      for (const a of answers) {
        lines.push([data.boards[q[8]], q[0], q[1], data.rows[a[0]][1], data.outcomes[a[1]], a[2], q[6],
          joined(q[4]), joined(q[4].map(turn => [turn[0], turn[3]])), joined(a[3]), joined(q[5]), a[4].map(percent).join(' ')]
          .map(quoted).join(','));
      }
    }
    save('samples', lines);
  });
  select();
})();
