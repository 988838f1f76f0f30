//! Infers the masks of a trace's layers before anything is judged, for traces without a declared mask.

use std::collections::BTreeMap;

use attnscope_checkpoint::captured::{Array, Captured};
use attnscope_compute::attention::{Direction, LayerAudit, Shape, Support};
use attnscope_compute::error::Result;
use attnscope_forward::Hook;
use attnscope_spec::Stack;
use rayon::prelude::*;

use super::arrays::{Parts, heads_of, hide_masked, layout_of};
use super::calls::{Calls, first_axis, linear};
use super::declared::Stated;
use super::heads::Heads;
use super::layout::{Axes, Known, axes_of};
use super::names::Layer;
use super::padding;

/// Most bytes of patterns and scores that are kept after they are observed, so that they need not be read twice.
const MOST_KEPT: usize = 256 << 20;

/// The pattern and the scores of a layer, with masked scores at −inf.
pub(super) struct Kept {
    pub pattern: Heads,
    pub scores: Option<Heads>,
}

/// Observations of one layer.
pub(super) struct Observed {
    pub axes: Axes,
    pub audit: LayerAudit,
    /// What was read, if a trace is small.
    pub kept: Option<Kept>,
    n_heads: usize,
    n_causal: usize,
    is_square: bool,
    /// Whether later keys receive next to nothing in every head.
    is_soft: bool,
}

/// Observed layers by stack and name, and notes that do not concern the mask.
pub(super) struct Observations {
    pub layers: BTreeMap<(Stack, Layer), Observed>,
    pub notes: Vec<String>,
    /// Masks that the call left out, in words, where most heads see later positions.
    pub absent_masks: Option<String>,
}

/// Reads every layer once to find the order of its axes and its mask. Fills in what `stated` leaves open.
///
/// # Errors
/// When an array cannot be read, or the order of its axes is ambiguous.
pub(super) fn observe(
    captured: &Captured,
    all: &BTreeMap<(Stack, Layer), Parts>,
    stated: &mut Stated,
) -> Result<Observations> {
    let calls = Calls::read(captured);
    let known = known(captured)?;
    let mut seen = BTreeMap::new();
    let mut masses: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    let mut notes = Vec::new();
    let keeps = n_bytes(captured, all) <= MOST_KEPT;
    let all: Vec<_> = all.iter().collect();
    let read = all.par_iter().map(|((stack, layer), parts)| {
        let mut masses = BTreeMap::new();
        let mut read = Read::of(captured, stated, &known, parts, &mut masses)?;
        if let Some(read) = read.as_mut().filter(|_| !keeps) {
            read.kept = None;
        }
        Ok(read.map(|read| ((*stack, layer.clone()), read, masses)))
    });
    let read: Vec<_> = read.collect::<Result<_>>()?;
    for ((stack, layer), read, of_layer) in read.into_iter().flatten() {
        for (n_keys, of_keys) in of_layer {
            let sums = masses
                .entry(n_keys)
                .or_insert_with(|| vec![0.0; of_keys.len()]);
            sums.iter_mut()
                .zip(of_keys)
                .for_each(|(sum, mass)| *sum += mass);
        }
        if read.axes != Axes::BatchHeadQueryKey {
            notes.push(format!("{} read as [{}]", read.name, read.axes.words()));
        }
        seen.insert((stack, layer), read);
    }
    if stated.real.is_none()
        && let Some(found) = padding::find(captured, &masses)?
    {
        let means = if found.is_inverted {
            "1 is padding"
        } else {
            "0 is padding"
        };
        notes.push(format!("padding from {} ({means})", found.name));
        stated.real = Some(found.real);
    }
    // One query and one key everywhere: some attention of a model that pools its tokens sees them before.
    let is_single = seen.values().all(|read| read.dims[1..] == [1, 1]);
    let mut layers = BTreeMap::new();
    for ((stack, layer), read) in seen {
        let observed = read.observed(stack, &layer, stated, &calls, &known, is_single);
        layers.insert((stack, layer), observed);
    }
    let absent = absent_masks(captured, &layers);
    // A mask that the call left out may be the one that hides later positions.
    let writes = absent.is_none() && captured.shape("decoder_tokens").is_some();
    infer(&layers, writes, stated);
    notes.extend(
        absent
            .as_ref()
            .map(|names| format!("the call gave no {names}, so later positions may be seen")),
    );
    notes.extend(infer_pads(&layers, stated));
    notes.extend(linear(captured).into_iter().chain(first_axis(captured)));
    Ok(Observations {
        layers,
        notes,
        absent_masks: absent,
    })
}

/// Bytes of all patterns and scores as f32. An archive does not say them before they are read.
fn n_bytes(captured: &Captured, all: &BTreeMap<(Stack, Layer), Parts>) -> usize {
    let hooks = [Hook::Pattern, Hook::Scores];
    let names = all
        .values()
        .flat_map(|parts| hooks.map(|hook| parts.get(&hook)));
    let shapes = names.flatten().map(|name| captured.shape(name));
    let n_values = |shape: Option<Vec<usize>>| shape.map_or(0, |shape| shape.iter().product());
    let n_values: usize = shapes.map(n_values).sum();
    n_values.saturating_mul(size_of::<f32>())
}

/// Sequence lengths and batch size, from tokens and masks.
fn known(captured: &Captured) -> Result<Known> {
    let mut known = Known::default();
    let of_tokens = captured.metadata.get("attnscope.tokens_shape");
    let sizes = of_tokens.map(|text| text.split(',').filter_map(|n| n.trim().parse().ok()));
    let mut shapes: Vec<Vec<usize>> = sizes.map(Iterator::collect).into_iter().collect();
    for name in ["tokens", "attention_mask", "decoder_tokens", "input_ids"] {
        shapes.extend(captured.shape(name));
    }
    for shape in shapes {
        match *shape.as_slice() {
            [n] => known.lengths.push(n),
            [n_batch, n] => {
                known.lengths.push(n);
                known.n_batch.get_or_insert(n_batch);
            }
            _ => {}
        }
    }
    Ok(known)
}

/// What the arrays of one layer show about its mask.
struct Read {
    name: String,
    axes: Axes,
    /// Cells that are nonzero in any head.
    support: Option<Support>,
    /// Whether each query gives weight to a later key. // [head, query]
    looks_ahead: Vec<bool>,
    has_own_zeros: bool,
    is_soft: bool,
    dims: [usize; 3],
    shape: Vec<usize>,
    batch_axis_deviation: Option<f64>,
    kept: Option<Kept>,
}

impl Read {
    fn of(
        captured: &Captured,
        stated: &Stated,
        known: &Known,
        parts: &Parts,
        masses: &mut BTreeMap<usize, Vec<f64>>,
    ) -> Result<Option<Self>> {
        let of_pattern = parts.get(&Hook::Pattern);
        let Some(name) = of_pattern.or_else(|| parts.get(&Hook::Scores)) else {
            return Ok(None);
        };
        let array = captured.array(name)?;
        let is_ours = captured.metadata.contains_key("attnscope.capture");
        let axes = match stated.axes {
            Some(axes) => axes,
            None if is_ours || of_pattern.is_none() => Axes::default(),
            None => axes_of(&array, known).ok_or_else(|| undecided(captured, name, &array))?,
        };
        let Array { shape, values } = array;
        let layout = layout_of(captured, name, &shape, axes)?;
        let batch_axis_deviation = of_pattern.and_then(|_| layout.batch_axis_deviation(&values));
        let first = layout.first(values);
        let dims = first.dims;
        let mut read = Self {
            name: name.clone(),
            axes,
            support: None,
            looks_ahead: Vec::new(),
            has_own_zeros: true,
            is_soft: false,
            dims,
            shape,
            batch_axis_deviation,
            kept: None,
        };
        if of_pattern.is_none() {
            return Ok(Some(read));
        }
        let mut scores = match parts.get(&Hook::Scores) {
            Some(name) => Some(heads_of(captured, name, axes)?),
            None => None,
        };
        // Arrays with contradicting shapes are refused later, when the layer is judged.
        let n_read = scores.iter().len();
        scores = scores.filter(|scores| scores.dims == first.dims);
        let fits = n_read == scores.iter().len();
        if let Some(scores) = &mut scores {
            hide_masked(scores, Some(&first));
        }
        let [n_heads, n_queries, n_keys] = dims;
        let mut support = Support::new(n_queries, n_keys);
        for head_idx in 0..n_heads {
            support.add(
                first.head(head_idx),
                scores.as_ref().map(|all| all.head(head_idx)),
            );
        }
        let heads: Vec<&[f32]> = (0..n_heads).map(|head_idx| first.head(head_idx)).collect();
        read.has_own_zeros = support.has_own_zeros(&heads);
        // Whether a mask is soft matters where nothing is declared.
        read.is_soft = stated.causal.is_none()
            && n_queries == n_keys
            && heads.iter().all(|head| is_softly_causal(head, n_keys));
        read.support = Some(support);
        read.looks_ahead = looks_ahead(&first);
        let sums = masses.entry(n_keys).or_insert_with(|| vec![0.0; n_keys]);
        for row in first.values.chunks(n_keys) {
            for (sum, p) in sums.iter_mut().zip(row) {
                *sum += if p.is_finite() {
                    f64::from(p.abs())
                } else {
                    0.0
                };
            }
        }
        read.kept = fits.then_some(Kept {
            pattern: first,
            scores,
        });
        Ok(Some(read))
    }

    fn observed(
        self,
        stack: Stack,
        layer: &Layer,
        stated: &Stated,
        calls: &Calls,
        known: &Known,
        is_single: bool,
    ) -> Observed {
        let [n_heads, n_queries, n_keys] = self.dims;
        let recorded = calls.of(&self.name);
        let is_self = stack != Stack::Cross;
        let is_square = is_self && n_queries == n_keys;
        let real = stated.real.as_deref().filter(|real| real.len() == n_keys);
        let may_pad = stack != Stack::Decoder;
        let is_real = |idx: usize| real.filter(|_| may_pad).map(|real| real[idx]);
        let support = self.support;
        let shape = support.map(|support| support.shape(&is_real, is_self));
        let mut causal_heads = Vec::new();
        if let Some(shape) = shape.as_ref().filter(|_| is_square && n_keys > 1) {
            let counts = |idx: usize| is_real(idx) != Some(false) && !shape.pads.contains(&idx);
            let never_ahead = |head_idx: &usize| {
                (0..n_queries)
                    .all(|idx| !counts(idx) || !self.looks_ahead[head_idx * n_queries + idx])
            };
            causal_heads = (0..n_heads).filter(never_ahead).collect();
        }
        let n_causal = causal_heads.len();
        // A causal mask over an axis says that it holds positions.
        let over_positions = n_queries > 2 && n_causal == n_heads;
        let across_batch = (!over_positions)
            .then(|| across_batch(known, &self.shape, &recorded.shape, self.dims, is_single))
            .flatten();
        let audit = LayerAudit {
            shape,
            is_declared_causal: stated
                .causal
                .map(|causal| causal && stack != Stack::Encoder),
            prefix: stated.prefix,
            wait_k: stated.wait_k,
            has_pads: real.is_some_and(|real| real.contains(&false)),
            kind: layer.kind(),
            causal_heads,
            has_own_zeros: self.has_own_zeros,
            across_batch,
            batch_axis_deviation: self.batch_axis_deviation,
            score_scale: None,
            recorded,
        };
        Observed {
            axes: self.axes,
            audit,
            kept: self.kept,
            n_heads,
            n_causal,
            is_square,
            is_soft: self.is_soft,
        }
    }
}

fn undecided(captured: &Captured, name: &str, array: &Array) -> attnscope_compute::error::Error {
    let problem = format!(
        "shape {:?} may be [batch, head, query, key] or another order; say which as attnscope.layout in the metadata (such as \
         bqkh), or save it in the first order",
        array.shape
    );
    captured.at(name, &problem)
}

/// Whether each row gives weight to a key after its query. // [head, query]
fn looks_ahead(pattern: &Heads) -> Vec<bool> {
    let [_, n_queries, n_keys] = pattern.dims;
    let rows = pattern.values.chunks(n_keys).enumerate();
    let ahead = rows.map(|(row_idx, row)| {
        let later = row.get(row_idx % n_queries + 1..).unwrap_or_default();
        later.iter().any(|p| *p != 0.0 && !p.is_nan())
    });
    ahead.collect()
}

/// Largest share of a row on later keys under a finite mask value such as −10.
const SOFT: f64 = 0.02;

/// Whether every row of a head gives next to nothing, but not exactly nothing, to later keys. Earlier keys other than the
/// first, which may be a sink, must receive far more.
fn is_softly_causal(head: &[f32], n_keys: usize) -> bool {
    let (mut of_later, mut of_earlier) = (0.0, 0.0);
    for (query_idx, row) in head.chunks(n_keys).enumerate() {
        let sum = |cells: &[f32]| cells.iter().map(|p| f64::from(*p)).sum::<f64>();
        let later = sum(&row[query_idx + 1..]);
        of_later += later;
        of_earlier += sum(row.get(1..=query_idx).unwrap_or_default());
        // Written this way round so that a NaN does not count as small.
        let is_little = later <= SOFT * sum(row);
        if !is_little {
            return false;
        }
    }
    n_keys >= 4 && of_later > 0.0 && of_earlier > of_later / SOFT
}

/// Detects attention across the batch: as many queries and keys as sequences, and as many "sequences" as tokens. In a batch of one,
/// only if every attention of the trace `is_single`: has one query and one key.
fn across_batch(
    known: &Known,
    stored: &[usize],
    called: &[usize],
    dims: [usize; 3],
    is_single: bool,
) -> Option<(usize, usize)> {
    let n_batch = known.n_batch.filter(|n| *n >= 2 || *n == 1 && is_single)?;
    let [_, n_queries, n_keys] = dims;
    let n_tokens = *known.lengths.first()?;
    let fits = n_queries == n_batch && n_keys == n_batch && n_tokens != n_batch;
    let whole = if called.is_empty() { stored } else { called };
    let leads = match *whole {
        [first, _, _] => first.is_multiple_of(n_tokens) && n_tokens > 1,
        [first, _, _, _] => first == n_tokens,
        _ => false,
    };
    (fits && leads).then_some((n_batch, n_tokens))
}

type Kind<'a> = (Stack, &'a str);

/// Infers the direction of each kind of layer: causal if most heads give exactly nothing to later keys.
///
/// A decoder that reads target tokens beside an encoder `writes` them one after the other: later ones are hidden from it,
/// whatever its heads do.
fn infer(layers: &BTreeMap<(Stack, Layer), Observed>, writes: bool, stated: &mut Stated) {
    if stated.causal.is_some() {
        return;
    }
    let writes = writes && layers.keys().any(|(stack, _)| *stack == Stack::Cross);
    let mut counts: BTreeMap<Kind<'_>, (usize, usize)> = BTreeMap::new();
    let mut prefixes: BTreeMap<Kind<'_>, Vec<Option<usize>>> = BTreeMap::new();
    let mut soft: BTreeMap<Kind<'_>, bool> = BTreeMap::new();
    for ((stack, _), seen) in layers {
        let Some(shape) = seen.audit.shape.as_ref().filter(|_| seen.is_square) else {
            continue;
        };
        if *stack == Stack::Cross || shape.n_keys < 2 {
            continue;
        }
        let kind = (*stack, seen.audit.kind.as_str());
        let (n_heads, n_causal) = counts.entry(kind).or_default();
        *n_heads += seen.n_heads;
        *n_causal += seen.n_causal;
        let prefix = match shape.direction {
            Direction::Prefix(n) if shape.is_tight => Some(n),
            _ => None,
        };
        prefixes.entry(kind).or_default().push(prefix);
        *soft.entry(kind).or_insert(true) &= seen.is_soft;
    }
    let mut said = Vec::new();
    for ((stack, kind), (n_heads, n_causal)) in &counts {
        let is_soft = soft.get(&(*stack, *kind)) == Some(&true);
        let must_be = writes && *stack == Stack::Decoder;
        let causal = is_soft || must_be || 2 * n_causal > *n_heads;
        stated.inferred.push((*stack, (*kind).to_owned(), causal));
        let direction = if causal { "causal" } else { "bidirectional" };
        let mut of = stack
            .label()
            .map_or(String::new(), |label| format!("{label} "));
        if counts.len() > 1 && !kind.is_empty() {
            of.push_str(&format!("{kind} "));
        }
        let prefixes = prefixes
            .get(&(*stack, *kind))
            .map_or(&[] as &[_], Vec::as_slice);
        let prefix = prefixes.first().copied().flatten();
        match prefix.filter(|_| prefixes.iter().all(|found| *found == prefix)) {
            Some(n) => {
                stated.inferred_prefix.push((*stack, (*kind).to_owned(), n));
                said.push(format!("{of}a prefix of {n} keys inferred, causal after it"));
            }
            None if is_soft => said.push(format!(
                "{of}causal inferred: later keys receive next to nothing in all {n_heads} heads"
            )),
            None if must_be && 2 * n_causal <= *n_heads => said.push(format!(
                "{of}causal, since it reads target tokens beside an encoder: {n_causal} of {n_heads} heads have exactly 0 above the diagonal"
            )),
            None => said.push(format!(
                "{of}{direction} inferred: {n_causal} of {n_heads} heads have exactly 0 above the diagonal"
            )),
        }
    }
    stated.origin = if said.is_empty() {
        "no pattern to infer a mask from".to_owned()
    } else {
        format!("{} (--mask says otherwise)", said.join("; "))
    };
}

/// The masks that the call did not give, where most heads see later positions.
fn absent_masks(
    captured: &Captured,
    layers: &BTreeMap<(Stack, Layer), Observed>,
) -> Option<String> {
    let names = captured.metadata.get("attnscope.absent_masks")?;
    let reading = layers.iter().filter(|((stack, _), seen)| {
        !matches!(stack, Stack::Encoder | Stack::Cross) && seen.is_square
    });
    let counts = reading.fold((0, 0), |(all, causal), (_, seen)| {
        (all + seen.n_heads, causal + seen.n_causal)
    });
    (counts.0 > 2 * counts.1).then(|| names.replace(',', ", "))
}

/// Keys that look like padding in every square layer, if no padding is declared; those of a decoder are of its own text.
fn infer_pads(layers: &BTreeMap<(Stack, Layer), Observed>, stated: &mut Stated) -> Vec<String> {
    let mut notes = Vec::new();
    if stated.real.is_none() {
        let is_source = |stack: Stack| !matches!(stack, Stack::Cross | Stack::Decoder);
        let (real, keys) = looks_padded(layers, is_source).unzip();
        stated.real = real;
        notes.extend(
            keys.map(|keys: String| {
                format!("keys {keys} taken as padding: no other query sees them")
            }),
        );
    }
    let (real, keys) = looks_padded(layers, |stack| stack == Stack::Decoder).unzip();
    stated.real_of_target = real;
    notes.extend(keys.map(|keys: String| {
        format!("keys {keys} of the decoder taken as padding: no other query sees them")
    }));
    notes
}

/// Which keys of the layers of some stacks are no padding by their patterns, and in words those that are.
fn looks_padded(
    layers: &BTreeMap<(Stack, Layer), Observed>,
    is_of: impl Fn(Stack) -> bool,
) -> Option<(Vec<bool>, String)> {
    let mut shapes = layers
        .iter()
        .filter(|((stack, _), seen)| is_of(*stack) && seen.is_square)
        .filter_map(|(_, seen)| seen.audit.shape.as_ref());
    let first: &Shape = shapes.next()?;
    let mut pads = first.pads.clone();
    for shape in shapes {
        if shape.n_keys != first.n_keys {
            return None;
        }
        pads.retain(|key_idx| shape.pads.contains(key_idx));
    }
    if pads.is_empty() {
        return None;
    }
    let real = (0..first.n_keys).map(|idx| !pads.contains(&idx)).collect();
    let keys: Vec<String> = pads.iter().map(usize::to_string).collect();
    Some((real, keys.join(", ")))
}
