/* Mosaics drawn from the digits, and four models trained on them epoch by epoch: what the page's worker does.

As in fcamlib, training and test mosaics come from disjoint digits, the label is uniform over the foreground classes and
the foreground's place uniform over the segments; plain SGD with momentum on batches of 64, with a fresh optimiser where
the hybrid switches. Every model starts from the same weights and sees the same batches.
*/
"use strict";

function fcamTrainRun(model) {
  const { PIXELS, largest, lossOf, networks, numWeights, pass, probabilities } = model;
  const PARADIGMS = ["soft", "hard", "lvml", "hybrid"];
  const BINS = 5;
  const SURE = 0.8; // both above it: SAIF
  const SHOWN = 8; // test mosaics whose segments the page shows
  const STREAMS = { train: 1, test: 2, weights: 3, order: 4 };

  /* Uniform numbers in [0, 1) from whole-number seeds (mulberry32, each seed mixed into its state). */
  function generator(...seeds) {
    let state = 0;
    const bits = () => {
      state = (state + 0x6d2b79f5) | 0;
      let z = Math.imul(state ^ (state >>> 15), state | 1);
      z ^= z + Math.imul(z ^ (z >>> 7), z | 61);
      return (z ^ (z >>> 14)) >>> 0;
    };
    for (const seed of seeds) state = bits() ^ seed;
    return () => bits() / 2 ** 32;
  }

  const below = (random, n) => Math.floor(random() * n);

  /* A normal number of mean 0 and variance 1 (Box and Muller). */
  const normal = (random) => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());

  function permutation(random, n) {
    const keys = Float64Array.from({ length: n }, random);
    return Int32Array.from(keys.keys()).sort((i, j) => keys[i] - keys[j] || i - j);
  }

  /* Pixels from -1 to 1, one character a pixel: 0 to 9 and a to g for 0 to 16. */
  const unpack = (pixels) => Float64Array.from(pixels, (character) => parseInt(character, 17) / 8 - 1);

  /* `count` mosaics of the digits of one pool, "t" or "e". */
  function mosaics({ labels, pools }, pool, { m: M, foreground }, count, random) {
    const members = (wanted) => [...labels].flatMap((digit, i) => (pools[i] === pool && wanted(digit) ? [i] : []));
    const names = foreground.split(",");
    const ofClass = names.map((name) => members((digit) => digit === name));
    const others = members((digit) => !names.includes(digit));
    const [index, label, place] = [new Int32Array(count * M), new Int32Array(count), new Int32Array(count)];
    for (let i = 0; i < count; i += 1) {
      label[i] = below(random, ofClass.length);
      place[i] = below(random, M);
      for (let j = 0; j < M; j += 1) index[i * M + j] = others[below(random, others.length)];
      const group = ofClass[label[i]];
      index[i * M + place[i]] = group[below(random, group.length)];
    }
    return { index, label, place, M };
  }

  /* Xavier normal weights and zero biases. */
  function initialWeights(hidden, classes, random) {
    const flat = new Float64Array(numWeights(hidden, classes));
    for (const { outputs, W, V } of Object.values(networks(flat, hidden, classes))) {
      for (const [weights, fan] of [[W, PIXELS + hidden], [V, hidden + outputs]]) {
        for (let i = 0; i < weights.length; i += 1) weights[i] = normal(random) * Math.sqrt(2 / fan);
      }
    }
    return flat;
  }

  /* The mosaics of `data` at the places of `order`. */
  function taken({ index, label, M }, order) {
    const batch = { index: new Int32Array(order.length * M), label: Int32Array.from(order, (i) => label[i]), M };
    order.forEach((i, b) => batch.index.set(index.slice(i * M, (i + 1) * M), b * M));
    return batch;
  }

  /* One epoch of SGD with momentum, in place. */
  function trainEpoch(loss, run, bank, data, order, { hidden, classes, rate, momentum, batch }) {
    const nets = networks(run.weights, hidden, classes);
    const gradient = new Float64Array(run.weights.length);
    for (let at = 0; at < order.length; at += batch) {
      gradient.fill(0);
      pass(loss, nets, bank, taken(data, order.slice(at, at + batch)), gradient);
      for (let i = 0; i < gradient.length; i += 1) {
        run.velocity[i] = momentum * run.velocity[i] + gradient[i];
        run.weights[i] -= rate * run.velocity[i];
      }
    }
  }

  /* Loss, accuracy, focus accuracy, SAIF and the plane of focus and prediction on the test mosaics. */
  function measures(loss, weights, bank, data, { hidden, classes }) {
    const found = pass(loss, networks(weights, hidden, classes), bank, data);
    const { label, place, M } = data;
    const n = label.length;
    const row = { loss: 0, accuracy: 0, focus_accuracy: 0, saif: 0, a_z: 0, s_y: 0, cells: Array(BINS * BINS).fill(0) };
    for (let b = 0; b < n; b += 1) {
      const scores = probabilities(loss, found, b, M, classes);
      const [a, s] = [Math.min(1, found.a[b * M + place[b]]), Math.min(1, scores[label[b]])];
      row.loss += found.losses[b] / n;
      row.accuracy += (largest(scores, 0, classes) === label[b]) / n;
      row.focus_accuracy += (largest(found.a, b * M, M) === b * M + place[b]) / n;
      row.saif += (a > SURE && s > SURE) / n;
      row.a_z += a / n;
      row.s_y += s / n;
      const bin = (value) => Math.min(BINS - 1, Math.floor(value * BINS));
      if (Number.isFinite(a + s)) row.cells[bin(a) * BINS + bin(s)] += 100 / n;
    }
    return row;
  }

  /* What a model does with the first test mosaics: attention, probability of the label, pull on the focus, prediction. */
  function looks(loss, weights, bank, data, { hidden, classes }) {
    const { M } = data;
    const first = taken(data, Int32Array.from({ length: SHOWN }, (_, i) => i));
    const nets = networks(weights, hidden, classes);
    const found = pass(loss, nets, bank, first, new Float64Array(weights.length));
    // Also under soft attention, the probability from each segment alone.
    const alone = loss === "soft" ? pass("hard", nets, bank, first) : found;
    return Array.from(first.label, (label, b) => {
      const scores = probabilities(loss, found, b, M, classes);
      return {
        a: [...found.a.subarray(b * M, (b + 1) * M)],
        p: [...alone.place.subarray(b * M, (b + 1) * M)].map((row) => Math.exp(alone.logP[row * classes + label])),
        pull: [...found.pull.subarray(b * M, (b + 1) * M)],
        loss: found.losses[b],
        predicted: largest(scores, 0, classes),
      };
    });
  }

  /* Trains one epoch of one paradigm a call; `report` gets each epoch's row. */
  class Trainer {
    constructor(settings, digits, report) {
      this.settings = { ...settings, classes: settings.foreground.split(",").length };
      this.report = report;
      this.bank = digits.bank;
      const of = (name) => generator(settings.seed, STREAMS[name]);
      this.train = mosaics(digits, "t", settings, settings.train, of("train"));
      this.test = mosaics(digits, "e", settings, settings.test, of("test"));
      this.goal = 0;
      const start = initialWeights(settings.hidden, this.settings.classes, of("weights"));
      this.softAt = [start.slice()]; // SA's weights after each epoch: the hybrid goes on from one of them
      this.runs = Object.fromEntries(PARADIGMS.map((name) => [name, this.fresh(start, 0)]));
      for (const name of PARADIGMS) this.note(name);
    }

    fresh = (weights, epoch) => ({ weights: weights.slice(), velocity: new Float64Array(weights.length), epoch });

    /* The paradigm that is behind the others, SA first; none where all have reached the goal. */
    get next() {
      const least = Math.min(...PARADIGMS.map((name) => this.runs[name].epoch));
      return least < this.goal ? PARADIGMS.find((name) => this.runs[name].epoch === least) : undefined;
    }

    /* Train one epoch of the paradigm that is behind. */
    step() {
      const name = this.next;
      const { turn, seed } = this.settings;
      const run = this.runs[name];
      const epoch = run.epoch + 1;
      const loss = lossOf(name, epoch, turn);
      if (name === "hybrid" && loss === "soft") this.runs.hybrid = this.fresh(this.softAt[epoch], epoch);
      else {
        const order = permutation(generator(seed, STREAMS.order, epoch), this.train.label.length);
        trainEpoch(loss, run, this.bank, this.train, order, this.settings);
        run.epoch = epoch;
        if (name === "soft") this.softAt[epoch] = run.weights.slice();
      }
      this.note(name);
    }

    note(name) {
      const { weights, epoch } = this.runs[name];
      const { turn } = this.settings;
      const trainedBy = lossOf(name, epoch, turn);
      const given = [trainedBy, weights, this.bank, this.test, this.settings];
      this.report({ name, epoch, turn, trainedBy, row: measures(...given), looks: looks(...given) });
    }

    /* Move the switch: what the hybrid has in common with SA stays, the rest is trained anew. */
    turnAt(turn) {
      const kept = Math.min(turn, this.settings.turn, this.runs.hybrid.epoch);
      this.settings.turn = turn;
      this.runs.hybrid = this.fresh(this.softAt[kept], kept);
      this.note("hybrid");
    }
  }

  /* Answer the page's messages {kind, ...} in a worker. */
  function serve(scope) {
    let [trainer, timer, digits] = [null, null, null];
    const work = () => {
      timer = null;
      if (!trainer.next) return;
      trainer.step();
      timer = setTimeout(work, 0); // lets messages in
    };
    const go = () => (timer ??= setTimeout(work, 0));
    const answers = {
      start({ settings, packed }) {
        digits ??= { ...packed, bank: unpack(packed.pixels) };
        trainer = new Trainer(settings, digits, (row) => scope.postMessage({ kind: "row", run: settings.run, ...row }));
        const { index, label, place } = trainer.test;
        const shown = { index: index.slice(0, SHOWN * settings.m), label: label.slice(0, SHOWN), place: place.slice(0, SHOWN) };
        scope.postMessage({ kind: "ready", run: settings.run, ...shown });
      },
      goal({ epoch }) {
        trainer.goal = epoch;
        go();
      },
      pause() {
        trainer.goal = Math.max(...PARADIGMS.map((name) => trainer.runs[name].epoch)); // all stop at one epoch
      },
      turn({ turn }) {
        trainer.turnAt(turn);
        go();
      },
    };
    scope.onmessage = ({ data }) => answers[data.kind](data);
  }

  return { PARADIGMS, SHOWN, Trainer, generator, looks, measures, mosaics, serve, trainEpoch, unpack };
}
