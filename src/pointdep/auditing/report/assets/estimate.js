// What a reviewer's decisions say of all rows: a random sample among the cuts, and its weights.
const CUTS = [0.05, 0.1, 0.2, 0.3, 0.5];
const OF_CUT = 10; // rows sampled between two cuts
const OF_REST = [20, 40]; // below the lowest PMI that is left, and of all others
const FEWEST = 30;

// A number from 0 to 1 that has nothing to do with what the row holds.
function lot(row) {
  let bits = Math.imul(row + 1, 0x9e3779b1);
  bits = Math.imul(bits ^ (bits >>> 16), 0x85ebca6b);
  bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2ae35);
  return ((bits ^ (bits >>> 16)) >>> 0) / 2 ** 32;
}

// Rows by q between the cuts, then the lowest PMI of the rest, then all others: {cut, rows, size}.
function makeStrata({ q_value, rank }) {
  const strata = [...CUTS, Infinity, Infinity].map((cut) => ({ cut, rows: [] }));
  const rest = [];
  q_value.forEach((q, row) => {
    const place = CUTS.findIndex((cut) => q <= Math.fround(cut));
    if (place >= 0) strata[place].rows.push(row);
    else if (!Number.isNaN(q)) rest.push(row); // rows out of step are not judged one by one
  });
  rest.sort((a, b) => rank[a] - rank[b]);
  const low = Math.max(100, Math.ceil(rest.length / 20));
  strata.at(-2).rows = rest.slice(0, low);
  strata.at(-1).rows = rest.slice(low);
  return strata.filter((stratum) => stratum.rows.length);
}

// Rows to review in this order: whoever stops early has seen about the same share of each stratum.
function makeSample(strata) {
  const places = [];
  strata.forEach((stratum, index) => {
    const rest = Number.isFinite(stratum.cut) ? OF_CUT : OF_REST[index < strata.length - 1 ? 0 : 1];
    const drawn = stratum.rows.slice().sort((a, b) => lot(a) - lot(b)).slice(0, rest);
    drawn.forEach((row, i) => places.push({ row, index, at: (i + lot(row)) / drawn.length }));
  });
  return places.sort((a, b) => a.at - b.at);
}

// Wilson's interval of a share, 95%, of n rows out of N.
function wilson(count, n, all) {
  if (n === all) return [count / n, count / n];
  const z2 = 1.96 ** 2;
  const rows = (n * (all - 1)) / (all - n); // more than n: what was looked at is known
  const share = count / n;
  const middle = (share + z2 / (2 * rows)) / (1 + z2 / rows);
  const reach = Math.sqrt((z2 * share * (1 - share)) / rows + (z2 / (2 * rows)) ** 2) / (1 + z2 / rows);
  return [middle - reach, middle + reach];
}

// The share of wrong pairs in strata of which n rows were looked at, `wrong` of them wrong, and its
// interval: those of the strata, their distances added by squares (Zou and Donner, 2008).
function combine(strata) {
  const all = strata.reduce((sum, { rows }) => sum + rows.length, 0);
  let [share, below, above] = [0, 0, 0];
  for (const { rows, n, wrong } of strata) {
    const weight = rows.length / all;
    const own = n ? wrong / n : 0.5;
    const [low, high] = n ? wilson(wrong, n, rows.length) : [0, 1];
    share += weight * own;
    below += (weight * (own - low)) ** 2;
    above += (weight * (high - own)) ** 2;
  }
  return { share, low: Math.max(0, share - Math.sqrt(below)), high: Math.min(1, share + Math.sqrt(above)) };
}

// Only the beginning of the sample counts that was decided without a gap: rows that were decided
// because they looked bad would make all look bad. Null where that is too short.
function estimateShares(strata, sample, decisions) {
  const gap = sample.findIndex(({ row }) => !decisions.has(row));
  const seen = gap < 0 ? sample : sample.slice(0, gap);
  const found = { seen: seen.length, needed: Math.min(FEWEST, sample.length), wrong: null, cuts: [] };
  if (!sample.length || found.seen < found.needed) return found;
  const counted = strata.map((stratum) => ({ ...stratum, n: 0, wrong: 0 }));
  for (const { row, index } of seen) {
    if (decisions.get(row) === "unsure") continue;
    counted[index].n += 1;
    if (decisions.get(row) === "wrong") counted[index].wrong += 1;
  }
  found.wrong = combine(counted);
  for (const cut of CUTS) {
    const inside = counted.filter((stratum) => stratum.cut <= cut);
    if (!inside.length || inside.at(-1).cut !== cut) continue;
    const count = inside.reduce((sum, { rows }) => sum + rows.length, 0);
    found.cuts.push({ cut, count, ...combine(inside) });
  }
  return found;
}
