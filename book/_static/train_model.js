/* Focus model, classification model, the losses and their gradients, in doubles: fcamlib's `mlp:1xWIDTH` on digits.

| here     | paper           | meaning                                                         |
|----------|-----------------|-----------------------------------------------------------------|
| a        | a_j             | attention weights, the softmax of the focus logits f(x_j)       |
| logP     | log p_y(x_j)    | log probability of the label when only segment j is seen        |
| pull     | d loss / d f(x_j) | gradient that a segment gives the focus model                 |
| share    |                 | weight of a segment's own cross-entropy in the gradient          |

B mosaics of M segments, K classes; n rows of pixels. Evaluated once per distinct digit, as in the library.
The text of this function is also the worker's: it uses nothing from outside.
*/
"use strict";

function fcamTrainModel() {
  const PIXELS = 64;

  /* The losses of one mosaic, whose segments stand at `at` to `at` + M - 1; each returns its value and fills `pull`. */
  const LOSSES = {
    /* -log p_y(sum_j a_j x_j): `slopes` are the derivatives along each segment, x_j times the gradient at the mixture. */
    soft(a, logP, at, M, pull, slopes) {
      let mean = 0;
      for (let j = at; j < at + M; j += 1) mean += a[j] * slopes[j];
      for (let j = at; j < at + M; j += 1) pull[j] = a[j] * (slopes[j] - mean);
      return -logP;
    },

    /* -sum_j a_j log p_y(x_j): a segment is pulled up where its own loss lies below the mean. */
    hard(a, logP, at, M, pull, share) {
      let loss = 0;
      for (let j = at; j < at + M; j += 1) loss -= a[j] * logP[j];
      for (let j = at; j < at + M; j += 1) {
        pull[j] = a[j] * (-logP[j] - loss);
        share[j] = a[j];
      }
      return loss;
    },

    /* -log sum_j a_j p_y(x_j): weights go from the prior a_j to the posterior r_j = a_j p_y(x_j) / sum. */
    lvml(a, logP, at, M, pull, share) {
      let top = -Infinity;
      for (let j = at; j < at + M; j += 1) top = Math.max(top, logP[j]);
      let sum = 0;
      for (let j = at; j < at + M; j += 1) sum += a[j] * Math.exp(logP[j] - top);
      for (let j = at; j < at + M; j += 1) {
        share[j] = (a[j] * Math.exp(logP[j] - top)) / sum;
        pull[j] = a[j] - share[j];
      }
      return -top - Math.log(sum);
    },
  };

  /* The loss that trains in an epoch: the hybrid's is soft up to its switch and hard afterwards. */
  const lossOf = (paradigm, epoch, turn) => (paradigm !== "hybrid" ? paradigm : epoch <= turn ? "soft" : "hard");

  /* Both networks as views of one flat array, in the order of torch's parameters. */
  function networks(flat, hidden, classes) {
    let start = 0;
    const next = (size) => flat.subarray(start, (start += size));
    const network = (outputs) => ({
      hidden, outputs, W: next(hidden * PIXELS), b: next(hidden), V: next(outputs * hidden), c: next(outputs),
    });
    return { focus: network(1), classifier: network(classes) };
  }

  const numWeights = (hidden, classes) => 2 * hidden * (PIXELS + 1) + (1 + classes) * (hidden + 1);

  /* Hidden units and outputs of n rows X. */
  function forward({ hidden, outputs, W, b, V, c }, X, n) {
    const H = new Float64Array(n * hidden);
    const out = new Float64Array(n * outputs);
    for (let i = 0; i < n; i += 1) {
      for (let h = 0; h < hidden; h += 1) {
        let [s0, s1, s2, s3] = [b[h], 0, 0, 0]; // four sums, so that none waits for the one before
        for (let p = 0, w = h * PIXELS, x = i * PIXELS; p < PIXELS; p += 4, w += 4, x += 4) {
          s0 += W[w] * X[x];
          s1 += W[w + 1] * X[x + 1];
          s2 += W[w + 2] * X[x + 2];
          s3 += W[w + 3] * X[x + 3];
        }
        H[i * hidden + h] = Math.max(0, s0 + s1 + (s2 + s3));
      }
      for (let k = 0; k < outputs; k += 1) {
        let sum = c[k];
        for (let h = 0; h < hidden; h += 1) sum += V[k * hidden + h] * H[i * hidden + h];
        out[i * outputs + k] = sum;
      }
    }
    return { X, n, H, out };
  }

  /* Add to `grad`, a network of gradients, those of outputs with gradient dOut; and those of the inputs to dX. */
  function backward({ hidden, outputs, W, V }, grad, { X, n, H }, dOut, dX) {
    const dH = new Float64Array(hidden);
    for (let i = 0; i < n; i += 1) {
      dH.fill(0);
      for (let k = 0; k < outputs; k += 1) {
        const d = dOut[i * outputs + k];
        grad.c[k] += d;
        for (let h = 0; h < hidden; h += 1) {
          grad.V[k * hidden + h] += d * H[i * hidden + h];
          dH[h] += d * V[k * hidden + h];
        }
      }
      for (let h = 0; h < hidden; h += 1) {
        const d = dH[h];
        if (H[i * hidden + h] === 0 || d === 0) continue;
        grad.b[h] += d;
        for (let p = 0, w = h * PIXELS, x = i * PIXELS; p < PIXELS; p += 1, w += 1, x += 1) grad.W[w] += d * X[x];
        if (dX) for (let p = 0, w = h * PIXELS, x = i * PIXELS; p < PIXELS; p += 1, w += 1, x += 1) dX[x] += d * W[w];
      }
    }
  }

  /* Turn rows of K logits into log probabilities, in place. */
  function logSoftmax(rows, K) {
    for (let i = 0; i < rows.length; i += K) {
      let top = -Infinity;
      for (let k = i; k < i + K; k += 1) top = Math.max(top, rows[k]);
      let sum = 0;
      for (let k = i; k < i + K; k += 1) sum += Math.exp(rows[k] - top);
      for (let k = i; k < i + K; k += 1) rows[k] -= top + Math.log(sum);
    }
    return rows;
  }

  /* The distinct digits of a batch: their pixels, and the row of each place. */
  function distinct(bank, index) {
    const row = new Int32Array(bank.length / PIXELS).fill(-1);
    const place = new Int32Array(index.length);
    const used = [];
    for (let i = 0; i < index.length; i += 1) {
      if (row[index[i]] < 0) row[index[i]] = used.push(index[i]) - 1;
      place[i] = row[index[i]];
    }
    const X = new Float64Array(used.length * PIXELS);
    used.forEach((digit, u) => X.set(bank.subarray(digit * PIXELS, (digit + 1) * PIXELS), u * PIXELS));
    return { X, n: used.length, place };
  }

  /* Attention-weighted sums of the segments. */
  function mixtures({ X, place }, a, B, M) {
    const sums = new Float64Array(B * PIXELS);
    for (let i = 0; i < place.length; i += 1) {
      const [from, to] = [place[i] * PIXELS, Math.floor(i / M) * PIXELS];
      for (let p = 0; p < PIXELS; p += 1) sums[to + p] += a[i] * X[from + p];
    }
    return sums;
  }

  /* One pass over the mosaics {index, label, M}: attention, log probabilities and the loss of each.

  `logP` has a row of K for each mosaic under soft attention, for each distinct digit otherwise. With `flatGrad` the
  gradient of the mean loss is added to it, and `pull` has that of each mosaic's own loss.
  */
  function pass(loss, nets, bank, { index, label, M }, flatGrad) {
    const [B, K] = [label.length, nets.classifier.outputs];
    const digits = distinct(bank, index);
    const { place } = digits;
    const focus = forward(nets.focus, digits.X, digits.n);
    const a = new Float64Array(B * M);
    for (let i = 0; i < a.length; i += 1) a[i] = focus.out[place[i]];
    logSoftmax(a, M);
    for (let i = 0; i < a.length; i += 1) a[i] = Math.exp(a[i]);
    const isSoft = loss === "soft";
    const read = isSoft ? forward(nets.classifier, mixtures(digits, a, B, M), B) : forward(nets.classifier, digits.X, digits.n);
    const logP = logSoftmax(read.out, K);
    const found = { a, logP, place, losses: new Float64Array(B), pull: new Float64Array(B * M) };
    const grads = flatGrad && networks(flatGrad, nets.focus.hidden, K);
    if (isSoft) softLosses(nets, grads, found, read, digits, label, M);
    else segmentLosses(loss, nets, grads, found, read, label, M);
    if (grads) {
      const dFocus = new Float64Array(digits.n);
      for (let i = 0; i < place.length; i += 1) dFocus[place[i]] += found.pull[i] / B;
      backward(nets.focus, grads.focus, focus, dFocus);
    }
    return found;
  }

  /* Losses of mixtures, and with `grads` the gradients of the classifier. */
  function softLosses(nets, grads, { a, logP, place, losses, pull }, read, digits, label, M) {
    const [B, K] = [label.length, nets.classifier.outputs];
    for (let b = 0; b < B; b += 1) losses[b] = -logP[b * K + label[b]];
    if (!grads) return;
    const dOut = logP.map((value, i) => (Math.exp(value) - (i % K === label[Math.floor(i / K)] ? 1 : 0)) / B);
    const dX = new Float64Array(B * PIXELS);
    backward(nets.classifier, grads.classifier, read, dOut, dX);
    const slopes = new Float64Array(B * M);
    for (let i = 0; i < slopes.length; i += 1) {
      const [x, d] = [place[i] * PIXELS, Math.floor(i / M) * PIXELS];
      for (let p = 0; p < PIXELS; p += 1) slopes[i] += B * dX[d + p] * digits.X[x + p];
    }
    for (let b = 0; b < B; b += 1) LOSSES.soft(a, -losses[b], b * M, M, pull, slopes);
  }

  /* Losses of single segments, hard or lvml, and with `grads` the gradients of the classifier. */
  function segmentLosses(loss, nets, grads, { a, logP, place, losses, pull }, read, label, M) {
    const [B, K] = [label.length, nets.classifier.outputs];
    const ofLabel = new Float64Array(B * M);
    for (let i = 0; i < ofLabel.length; i += 1) ofLabel[i] = logP[place[i] * K + label[Math.floor(i / M)]];
    const share = new Float64Array(B * M);
    for (let b = 0; b < B; b += 1) losses[b] = LOSSES[loss](a, ofLabel, b * M, M, pull, share);
    if (!grads) return;
    const dOut = new Float64Array(logP.length);
    const total = new Float64Array(read.n);
    for (let i = 0; i < share.length; i += 1) {
      total[place[i]] += share[i] / B;
      dOut[place[i] * K + label[Math.floor(i / M)]] -= share[i] / B;
    }
    for (let i = 0; i < dOut.length; i += 1) dOut[i] += total[Math.floor(i / K)] * Math.exp(logP[i]);
    backward(nets.classifier, grads.classifier, read, dOut);
  }

  /* Probabilities of the classes for mosaic b, as the loss predicts: of the mixture, of the focus, or the marginal. */
  function probabilities(loss, { a, logP, place }, b, M, K) {
    const sum = new Float64Array(K);
    const focus = largest(a, b * M, M);
    for (let j = b * M; j < (b + 1) * M; j += 1) {
      const weight = loss === "lvml" ? a[j] : Number(j === focus);
      const row = loss === "soft" ? b : place[j];
      for (let k = 0; k < K; k += 1) sum[k] += weight * Math.exp(logP[row * K + k]);
    }
    return sum;
  }

  /* Place of the largest of `length` values from `at`, the first among equals. */
  function largest(values, at, length) {
    let best = at;
    for (let i = at + 1; i < at + length; i += 1) if (values[i] > values[best]) best = i;
    return best;
  }

  return { PIXELS, largest, lossOf, networks, numWeights, pass, probabilities };
}
