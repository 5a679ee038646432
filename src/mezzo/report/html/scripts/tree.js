// The boxes of the drawing: nested groups, with nodes and casts as leaves.
"use strict";

// Groups with more children than this are divided into parts.
const MANY = 60, PART = 30, FEW = 8;
// A group with one group among so many children opens with it.
const CHAIN = 4;

// The children of every leaf: a hundred thousand empty lists would cost more than the boxes.
const LEAF = Object.freeze([]);

class Box {
  constructor(id, parent, kind, name) {
    this.id = id;
    this.parent = parent;
    this.kind = kind;
    this.name = name;
    this.children = LEAF;
    this.depth = 0;
    this.isOpen = false;
    this.first = Infinity;
    this.ops = 0;
    this.node = undefined;
    this.prefix = undefined;
    this.mark = "";
    this.differs = 0;
    this.hits = 0;
  }
  get isGroup() { return this.children.length > 0; }
}

// The label of a part of a long list: "layer.0 … layer.29".
function nameRange(part) {
  const [first, last] = [part.children[0], part.children[part.children.length - 1]].map((box) => box.kind === "part" ? null : lastPart(box.name));
  return first && last && first.length + last.length < 28 ? `${first} … ${last}` : null;
}

class Tree {
  // `views`: one plan, or two that are shown side by side.
  constructor(account, views) {
    this.account = account;
    this.views = views;
    this.byId = new Map();
    this.boxOf = new Map(); // node position -> its box
    this.root = this.add(new Box("g0", null, "graph", ""));
    this.placeNodes();
    this.casts = this.placeCasts();
    this.tidy(this.root);
    this.root.isOpen = true;
    this.settle();
    this.edges = this.findEdges();
  }

  add(box) {
    this.byId.set(box.id, box);
    if (box.parent) {
      if (box.parent.children === LEAF) box.parent.children = [];
      box.parent.children.push(box);
    }
    return box;
  }

  placeNodes() {
    const { nodes, graph } = this.account;
    const groups = [this.root];
    graph.groups.forEach((group, number) => {
      if (number) groups.push(this.add(new Box(`g${number}`, groups[group.parent], group.kind, group.name)));
    });
    this.groups = groups;
    nodes.forEach((node, number) => {
      if (!DRAWN.has(node.kind)) return;
      const box = this.add(new Box(`n${number}`, groups[node.group], node.kind, node.name));
      box.node = number;
      box.first = number;
      this.boxOf.set(number, box);
    });
  }

  // A cast comes after the producer of its value. With two plans, `by` lists those that have the cast.
  placeCasts() {
    const placed = new Map();
    this.views.forEach((view, side) => view.realCasts.forEach((cast) => {
      const key = `${cast.value}-${cast.dtype}`;
      const maker = this.account.values[cast.value].producer;
      const inside = this.boxOf.get(maker);
      if (!placed.has(key)) {
        const around = inside && inside.kind !== "input" ? inside.parent : this.around(cast.users);
        const box = this.add(new Box(`c${key}`, around, "placed", this.account.values[cast.value].name));
        Object.assign(box, { cast, by: [], users: new Set(), maker, first: maker + 0.5 });
        placed.set(key, box);
      }
      const box = placed.get(key);
      box.by.push(side);
      cast.users.forEach((user) => box.users.add(user));
    }));
    return [...placed.values()];
  }

  // The innermost common group of some nodes, outside subgraphs: a cast for all of them is placed once.
  around(nodes) {
    const chains = nodes.map((node) => {
      const chain = [];
      for (let box = this.boxOf.get(node)?.parent; box; box = box.parent) chain.unshift(box);
      return chain;
    }).filter((chain) => chain.length);
    let found = this.root;
    for (let depth = 1; chains.length && chains.every((chain) => chain[depth] === chains[0][depth] && chain[depth]?.kind === "scope"); depth += 1) found = chains[0][depth];
    return found;
  }

  // Drop empty groups, replace a group by its only child, sort in graph order, divide long groups.
  tidy(box) {
    const waiting = [[box, false]];
    while (waiting.length) {
      const [current, isDone] = waiting.pop();
      if (!isDone) {
        waiting.push([current, true]);
        current.children.forEach((child) => { if (child.isGroup) waiting.push([child, false]); });
        continue;
      }
      if (current === this.root || current.isGroup) this.tidyChildren(current);
      if (current.children.length > MANY) current.children = this.gather(current);
      if (current.children.length > MANY) current.children = this.cut(current);
      for (const child of current.children) {
        current.first = Math.min(current.first, child.first);
        current.ops += child.isGroup ? child.ops : child.kind === "op" ? 1 : 0;
      }
    }
  }

  tidyChildren(group) {
    const kept = [];
    for (const child of group.children) {
      if (!child.isGroup) { if (child.node !== undefined || child.cast) kept.push(child); }
      else for (const part of this.scatter(child)) kept.push(this.skipLonely(part, group));
    }
    for (const child of kept) child.parent = group;
    group.children = kept.sort((a, b) => a.first - b.first);
  }

  // A group of unconnected operators, such as one module called three times, hides the graph's
  // order: its operators are placed where they are called.
  scatter(group) {
    if (!group.isGroup || group.kind === "body" || group.children.length > 12 || group.children.some((child) => child.isGroup)) return [group];
    const { nodes, values } = this.account;
    if (group.children.filter((child) => !child.cast).length === 1) return this.release(group);
    const within = new Set(group.children.map((child) => child.node ?? child.maker));
    const isJoined = group.children.some((child) => child.cast || nodes[child.node].inputs.some((value) => value !== null && within.has(values[value].producer)));
    return isJoined ? [group] : this.release(group);
  }

  release(group) {
    group.children.forEach((child) => { child.prefix = group.name; });
    this.byId.delete(group.id);
    return group.children;
  }

  skipLonely(child, parent) {
    let found = child;
    while (found.isGroup && found.children.length === 1) {
      const only = found.children[0];
      if (only.isGroup) only.name = `${found.name}/${only.name}`;
      else only.prefix = found.name;
      this.byId.delete(found.id);
      found = only;
    }
    found.parent = parent;
    return found;
  }

  // Dozens of inputs and outputs, such as a language model's caches, hide the model: one box for each side.
  gather(box) {
    const parts = [];
    for (const kind of ["input", "output"]) {
      const alike = box.children.filter((child) => child.kind === kind);
      if (alike.length <= FEW) continue;
      const part = this.add(new Box(`p${box.id}-${kind}`, null, "part", plural(alike.length, kind)));
      Object.assign(part, { parent: box, children: alike, first: alike[0].first });
      alike.forEach((child) => { child.parent = part; });
      parts.push(part);
    }
    const gathered = new Set(parts.flatMap((part) => part.children));
    return [...box.children.filter((child) => !gathered.has(child)), ...parts].sort((a, b) => a.first - b.first);
  }

  cut(box) {
    let level = 0, items = box.children;
    while (items.length > MANY) {
      const length = Math.max(PART, Math.ceil(items.length / PART / PART));
      const parts = [];
      for (let begin = 0; begin < items.length; begin += length) {
        const part = new Box(`p${box.id}-${level}-${begin}`, box, "part", "");
        part.children = items.slice(begin, begin + length);
        part.children.forEach((child) => { child.parent = part; });
        part.first = part.children[0].first;
        part.ops = part.children.reduce((sum, child) => sum + (child.isGroup ? child.ops : child.kind === "op" ? 1 : 0), 0);
        this.byId.set(part.id, part);
        parts.push(part);
      }
      parts.forEach((part, number) => { part.name = nameRange(part) ?? `part ${number + 1} of ${parts.length}`; });
      items = parts;
      level += 1;
    }
    return items;
  }

  // All boxes, each after the one around it.
  inOrder() {
    const order = [];
    const waiting = [this.root];
    while (waiting.length) {
      const box = waiting.pop();
      order.push(box);
      for (const child of box.children) waiting.push(child);
    }
    return order;
  }

  // Depth of each box, and its number of operators by precision, per plan.
  settle() {
    const order = this.inOrder();
    for (const box of order) if (box.parent) box.depth = box.parent.depth + 1;
    const [first, second] = this.views;
    const { begins, worst, mark } = this.account.wrong;
    for (const box of order.reverse()) {
      box.mark = box.node !== undefined && (box.node === begins || box.node === worst) ? mark : "";
      box.differs = Number(box.kind === "op" && second !== undefined && first.precision[box.node] !== second.precision[box.node]);
      if (!box.isGroup) continue;
      box.shares = this.views.map(() => new Map());
      for (const child of box.children) {
        box.differs += child.differs;
        box.mark ||= child.mark;
        box.shares.forEach((share, side) => {
          const add = (number, dtype) => share.set(dtype, (share.get(dtype) ?? 0) + number);
          if (child.isGroup) child.shares[side].forEach(add);
          else if (child.kind === "op") add(1, this.views[side].precision[child.node] ?? "none");
        });
      }
    }
  }

  // [source box, target box, value], with casts as boxes between them.
  findEdges() {
    const edges = [];
    const { nodes, values } = this.account;
    const cast = new Set(); // value and reader in one number
    for (const box of this.casts) {
      const maker = this.boxOf.get(box.maker);
      if (maker) edges.push([maker, box, box.cast.value]);
      for (const user of box.users) {
        const reader = this.boxOf.get(user);
        if (reader) edges.push([box, reader, box.cast.value]);
        if (box.by.length === this.views.length) cast.add(box.cast.value * nodes.length + user);
      }
    }
    nodes.forEach((node, number) => {
      const reader = this.boxOf.get(number);
      if (!reader) return;
      node.inputs.forEach((value, place) => {
        const maker = value === null ? undefined : this.boxOf.get(values[value].producer);
        if (maker && node.inputs.indexOf(value) === place && !cast.has(value * nodes.length + number)) edges.push([maker, reader, value]);
      });
    });
    return edges;
  }

  // Mark the boxes that hold some of these nodes; null: no marks.
  find(nodes) {
    for (const box of this.inOrder().reverse()) {
      box.hits = box.isGroup ? box.children.reduce((sum, child) => sum + child.hits, 0)
        : box.cast ? Number(nodes !== null && (nodes.has(box.maker) || [...box.users].some((user) => nodes.has(user)))) : Number(nodes?.has(box.node) ?? false);
    }
  }

  // Open a group; where it holds one group alone beside single nodes, open that too.
  openChain(box) {
    box.isOpen = true;
    const groups = box.children.filter((child) => child.isGroup);
    if (groups.length === 1 && box.children.length <= CHAIN) this.openChain(groups[0]);
  }

  open(box) { for (let around = box; around; around = around.parent) if (around.isGroup) around.isOpen = true; }
  reveal(box) { if (box.parent) this.open(box.parent); }
}
