//! One attention on a device of candle and by the definition, and the comparison of all that they give.

use std::collections::BTreeMap;
use std::sync::Mutex;

use attnscope::attention::{
    AttentionSpec, BlockSink, HeadInput, HeadSummary, Repeats, RowSummary, Run, Visibility,
    run_head,
};
use attnscope::ops::{Candle, Ops};
use attnscope::pace::Pace;

/// Largest difference of a probability, as users are told.
const PATTERN_TOLERANCE: f32 = 2e-4;
/// Of an entropy.
const ENTROPY_TOLERANCE: f32 = 1e-3;
/// Of everything else: this part of the largest that a field holds in the head, and at least of 1.
const RELATIVE_TOLERANCE: f32 = 1e-4;

/// One attention with its input.
#[derive(Debug, Clone)]
pub struct Case {
    pub spec: AttentionSpec,
    pub n_queries: usize,
    pub n_keys: usize,
    pub q: Vec<f32>,
    pub k: Vec<f32>,
    pub v: Vec<f32>,
    pub real_queries: Option<Vec<bool>>,
    pub real_keys: Option<Vec<bool>>,
    pub sinks: Option<Vec<f32>>,
    pub bucket_values: Vec<f32>,
    pub positions: Vec<usize>,
    pub tokens: Option<Vec<u32>>,
    /// Heads to run.
    pub heads: std::ops::Range<usize>,
    pub block_values: usize,
}

/// Numbers from −1 to 1 that depend on the seed alone.
pub fn noise(seed: u64, n: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..n).map(|_| random.f32() * 2.0 - 1.0).collect()
}

impl Case {
    /// A case of `n` positions whose queries and keys have components up to `size`.
    pub fn filled(spec: AttentionSpec, n: usize, seed: u64, size: f32) -> Self {
        Self::crossing(spec, n, n, seed, size)
    }

    pub fn crossing(
        spec: AttentionSpec,
        n_queries: usize,
        n_keys: usize,
        seed: u64,
        size: f32,
    ) -> Self {
        let sized = |values: Vec<f32>| values.into_iter().map(|v| v * size).collect();
        let seed = seed.wrapping_mul(5);
        Self {
            q: sized(noise(seed, n_queries * spec.n_heads * spec.d_head)),
            k: sized(noise(seed + 1, n_keys * spec.n_kv_heads * spec.d_head)),
            v: noise(seed + 2, n_keys * spec.n_kv_heads * spec.d_value),
            n_queries,
            n_keys,
            real_queries: None,
            real_keys: None,
            sinks: None,
            bucket_values: Vec::new(),
            positions: Vec::new(),
            tokens: None,
            heads: 0..spec.n_heads,
            block_values: 4096,
            spec,
        }
    }

    /// What it is, without its numbers.
    fn name(&self) -> String {
        let Self {
            n_queries, n_keys, ..
        } = self;
        format!("{n_queries} × {n_keys}, {:?}", self.spec)
    }

    fn visibility(&self) -> Visibility {
        match self.spec.is_cross {
            false => Visibility::of_self(self.spec.mask, self.n_queries, self.real_keys.as_deref()),
            true => Visibility::of_cross(
                self.spec.mask,
                (self.n_queries, self.real_queries.as_deref()),
                (self.n_keys, self.real_keys.as_deref()),
            ),
        }
    }

    pub fn with_run<T>(
        &self,
        sink: &dyn BlockSink,
        pace: &dyn Pace,
        then: impl FnOnce(&Run<'_>) -> T,
    ) -> T {
        let visibility = self.visibility();
        let repeats = self.tokens.as_deref().map(Repeats::of);
        then(&Run {
            spec: &self.spec,
            visibility: &visibility,
            heads: self.heads.clone(),
            sinks: self.sinks.as_deref(),
            bucket_values: Some(&self.bucket_values[..]).filter(|values| !values.is_empty()),
            positions: &self.positions,
            repeats: repeats.as_ref(),
            sink: Some(sink),
            pace,
        })
    }
}

/// What an attention gives, blocks put together.
pub struct Found {
    pub summaries: Vec<HeadSummary>,
    /// [query, n_heads · d_value]
    pub z: Vec<f32>,
    /// Scores and pattern of each head. // [query, key]
    pub matrices: BTreeMap<usize, Matrices>,
}

/// Scores and pattern.
type Matrices = (Vec<f32>, Vec<f32>);

/// Rows by head and first query.
#[derive(Default)]
pub struct Collect(Mutex<BTreeMap<(usize, usize), Matrices>>);

impl BlockSink for Collect {
    fn block(&self, head_idx: usize, first_query: usize, scores: &[f32], pattern: &[f32]) {
        let mut blocks = self.0.lock().expect("a lock");
        let old = blocks.insert((head_idx, first_query), (scores.to_vec(), pattern.to_vec()));
        assert!(old.is_none(), "every row comes once");
    }
}

impl Collect {
    fn whole(self) -> BTreeMap<usize, Matrices> {
        let mut whole: BTreeMap<usize, Matrices> = BTreeMap::new();
        for ((head_idx, _), (scores, pattern)) in self.0.into_inner().expect("a lock") {
            let of_head = whole.entry(head_idx).or_default();
            of_head.0.extend(scores);
            of_head.1.extend(pattern);
        }
        whole
    }
}

pub fn by_definition(case: &Case) -> Found {
    let collect = Collect::default();
    let (d_value, width) = (case.spec.d_value, case.spec.n_heads * case.spec.d_value);
    let mut z = vec![0.0; case.n_queries * width];
    let input = HeadInput {
        q: &case.q,
        k: &case.k,
        v: &case.v,
    };
    let summaries = case.with_run(&collect, &|| false, |run| {
        let head = |head_idx: usize| {
            let head = run_head(run, input, head_idx).expect("nobody stops it");
            for (row, of_head) in z.chunks_mut(width).zip(head.z.chunks(d_value)) {
                row[head_idx * d_value..][..d_value].copy_from_slice(of_head);
            }
            head.summary
        };
        case.heads.clone().map(head).collect()
    });
    Found {
        summaries,
        z,
        matrices: collect.whole(),
    }
}

pub fn on_device(candle: &Candle, case: &Case) -> Found {
    let collect = Collect::default();
    let candle = candle.clone().with_block_values(case.block_values);
    let put = |values: &[f32], width: usize| {
        let mut buffer = Default::default();
        candle.put(values, width, &mut buffer).expect("put");
        buffer
    };
    let spec = &case.spec;
    let q = put(&case.q, spec.n_heads * spec.d_head);
    let k = put(&case.k, spec.n_kv_heads * spec.d_head);
    let v = put(&case.v, spec.n_kv_heads * spec.d_value);
    let mut z = Default::default();
    let summaries = case.with_run(&collect, &|| false, |run| {
        candle.attend(run, &q, &k, &v, &mut z).expect("runs")
    });
    let z = candle.get(&z).expect("z").values.into_owned();
    Found {
        summaries,
        z,
        matrices: collect.whole(),
    }
}

/// Both NaN, both the same infinity, or this close; says how far apart.
fn near(found: f32, expected: f32, tolerance: f32, place: impl Fn() -> String) -> f32 {
    if (found.is_nan() && expected.is_nan()) || found == expected {
        return 0.0;
    }
    let apart = (found - expected).abs();
    assert!(
        apart <= tolerance,
        "{}: expected {expected}, found {found}, {tolerance:e} allowed",
        place()
    );
    apart
}

/// Largest differences that were seen.
#[derive(Debug, Default, Clone, Copy)]
pub struct Apart {
    pub pattern: f32,
    pub entropy: f32,
}

type Field = (&'static str, fn(&RowSummary) -> f32);

/// Fields of a row that are compared in proportion to the largest of the head.
const FIELDS: &[Field] = &[
    ("score_mean", |row| row.score_mean),
    ("score_var", |row| row.score_var),
    ("score_min", |row| row.score_min),
    ("score_max", |row| row.score_max),
    ("score_norm", |row| row.score_norm),
    ("raw_mean", |row| row.raw_mean),
    ("raw_var", |row| row.raw_var),
    ("raw_min", |row| row.raw_min),
    ("raw_max", |row| row.raw_max),
    ("log_sum_exp", |row| row.log_sum_exp),
    ("mass", |row| row.mass),
    ("sum_p2", |row| row.sum_p2),
    ("sum_p3", |row| row.sum_p3),
    ("distance", |row| row.distance),
    ("q_norm", |row| row.q_norm),
    ("k_norm_sq_sum", |row| row.k_norm_sq_sum),
    ("cosine", |row| row.cosine),
];

/// Fields of a row that are probabilities, or sums of some.
const MASSES: &[Field] = &[
    ("top1", |row| row.top1),
    ("top2", |row| row.top2),
    ("first_mass", |row| row.first_mass),
    ("diagonal_mass", |row| row.diagonal_mass),
    ("previous_mass", |row| row.previous_mass),
    ("duplicate_mass", |row| row.duplicate_mass),
    ("induction_mass", |row| row.induction_mass),
];

pub fn compare(case: &Case, found: &Found) -> Apart {
    let expected = by_definition(case);
    let mut apart = Apart::default();
    assert_eq!(found.summaries.len(), expected.summaries.len());
    let heads = case.heads.clone();
    let summaries = found.summaries.iter().zip(&expected.summaries);
    for (head_idx, (found_head, expected_head)) in heads.zip(summaries) {
        let at = |what: &str| format!("head {head_idx} of {}: {what}", case.name());
        let (scores, pattern) = &found.matrices[&head_idx];
        let (expected_scores, expected_pattern) = &expected.matrices[&head_idx];
        assert_eq!(scores.len(), expected_scores.len());
        let largest = |values: &mut dyn Iterator<Item = f32>| {
            let finite = values.filter(|value| value.is_finite());
            finite.fold(1.0, |largest, value| value.abs().max(largest))
        };
        let of_scores = 1e-5 * largest(&mut expected_scores.iter().copied());
        for idx in 0..scores.len() {
            near(scores[idx], expected_scores[idx], of_scores, || {
                at(&format!("score {idx}"))
            });
            let (p, expected_p) = (pattern[idx], expected_pattern[idx]);
            let p = near(p, expected_p, PATTERN_TOLERANCE, || {
                at(&format!("pattern {idx}"))
            });
            apart.pattern = apart.pattern.max(p);
        }
        let rows = found_head.rows.iter().zip(&expected_head.rows);
        for (name, field) in FIELDS {
            let size = largest(&mut expected_head.rows.iter().map(field));
            for (query_idx, (row, expected_row)) in rows.clone().enumerate() {
                let place = || at(&format!("query {query_idx}: {name}"));
                let tolerance = RELATIVE_TOLERANCE * size;
                near(field(row), field(expected_row), tolerance, place);
            }
        }
        for (query_idx, (row, expected_row)) in rows.enumerate() {
            let place = |what: &str| at(&format!("query {query_idx}: {what}"));
            assert_eq!(
                row.n_visible,
                expected_row.n_visible,
                "{}",
                place("n_visible")
            );
            assert_eq!(row.is_real, expected_row.is_real, "{}", place("is_real"));
            let is_same = row.is_nonfinite == expected_row.is_nonfinite;
            assert!(is_same, "{}", place("is_nonfinite"));
            for (name, field) in MASSES {
                near(field(row), field(expected_row), PATTERN_TOLERANCE, || {
                    place(name)
                });
            }
            let entropy = (row.entropy, expected_row.entropy);
            let entropy = near(entropy.0, entropy.1, ENTROPY_TOLERANCE, || place("entropy"));
            apart.entropy = apart.entropy.max(entropy);
            // Near ties may fall either way.
            if row.n_visible > 0 && !row.top1.is_nan() {
                let chosen = pattern[query_idx * case.n_keys + row.argmax as usize];
                assert_eq!(chosen, row.top1, "{}", place("argmax"));
            }
        }
        let lists = [
            (
                "column_sums",
                &found_head.column_sums,
                &expected_head.column_sums,
            ),
            ("k_norms", &found_head.k_norms, &expected_head.k_norms),
            ("samples", &found_head.samples, &expected_head.samples),
            (
                "pooled",
                &found_head.pooled.cells,
                &expected_head.pooled.cells,
            ),
        ];
        for (name, found, expected) in lists {
            assert_eq!(found.len(), expected.len(), "{}", at(name));
            let size = largest(&mut expected.iter().copied());
            for (idx, (found, expected)) in found.iter().zip(expected).enumerate() {
                let place = || at(&format!("{name} {idx}"));
                near(*found, *expected, PATTERN_TOLERANCE * size, place);
            }
        }
        assert_eq!(found_head.real_keys, expected_head.real_keys);
        let pooled = (&found_head.pooled, &expected_head.pooled);
        assert_eq!(
            (pooled.0.n_rows, pooled.0.n_cols),
            (pooled.1.n_rows, pooled.1.n_cols)
        );
    }
    for (idx, (found, expected)) in found.z.iter().zip(&expected.z).enumerate() {
        near(*found, *expected, 2e-4, || {
            format!("z {idx} of {}", case.name())
        });
    }
    apart
}
