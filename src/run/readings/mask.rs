//! Which keys a query saw.
//!
//! - **none**: every key. **one too many**: the next token too, which is the label. **one too few**: not its own token.
//!   **inverted**: only what a causal mask hides.
//! - **soft**: what is hidden has −10, −1 or +1 added to its score instead of −∞.
//! - **prefix**: the first 4, 8, 16 … tokens are seen by all.
//! - **window**: 4, 8, 16 … keys, one more or less than declared, none, and windows in the other layers, with their rotary bases or
//!   without.
//! - **causal**: where the configuration declares none.
//!
//! What a query sees of the tokens after it includes its label; such readings count only where the declared loss is no better
//! than word frequencies. All are also tried in each layer alone, and all but prefix and window in each head alone, where the
//! budget allows.

use std::sync::Arc;

use attnscope_checks::SeesLabels;
use attnscope_compute::attention::{AttentionOverride, Mask, MaskOverride};
use attnscope_spec::{BlockSpec, ModelSpec};

use super::{Family, IsLocal, Known, Reading};

pub(super) const FAMILY: Family = Family {
    id: "mask",
    source: include_str!("mask.rs"),
    readings,
};

const NO_MASK: &str = "no causal mask";

fn readings(known: &Known<'_>) -> Vec<Reading> {
    // The masks of an encoder and a decoder are no setting.
    let is_one_stack = known.spec().stacks.len() == 1;
    let reading = |name: String, advice: &str, sight: MaskOverride| {
        let advice = if is_one_stack { advice } else { "" };
        let odd = AttentionOverride {
            sight: Some(sight),
            ..AttentionOverride::NONE
        };
        Reading::new(FAMILY.id, name, advice).odd(odd)
    };
    let masks: Vec<Mask> = known
        .spec()
        .main_stack()
        .blocks()
        .iter()
        .filter_map(|block| Some(block.attention()?.mask))
        .collect();
    if !masks.iter().any(|mask| mask.causal) {
        let causal = reading(
            "a causal mask".to_owned(),
            "--set mask=causal",
            MaskOverride::Causal,
        );
        return vec![causal.local(IsLocal::InLayers)];
    }
    let leaking = [
        (NO_MASK, "--set mask=bidirectional", MaskOverride::All),
        (
            "a causal mask that lets each token see the next one",
            "",
            MaskOverride::Shifted(1),
        ),
        ("an inverted causal mask", "", MaskOverride::Inverted),
        (
            "−10 added to hidden scores instead of −∞",
            "",
            MaskOverride::Soft(-10.0),
        ),
        (
            "−1 added to hidden scores instead of −∞",
            "",
            MaskOverride::Soft(-1.0),
        ),
        (
            "1 added to hidden scores instead of −∞",
            "",
            MaskOverride::Soft(1.0),
        ),
    ];
    let mut all: Vec<Reading> = leaking
        .into_iter()
        .map(|(name, advice, sight)| {
            let sees = if sight == MaskOverride::Soft(-10.0) {
                SeesLabels::Faintly
            } else {
                SeesLabels::Plainly
            };
            let mut reading = reading(name.to_owned(), advice, sight);
            reading.hypothesis.shown_by = (sight == MaskOverride::Shifted(1)).then_some(NO_MASK);
            reading.seeing_labels(sees).local(IsLocal::InHeads)
        })
        .collect();
    let name = "a causal mask that hides each token from itself".to_owned();
    all.push(reading(name, "", MaskOverride::Shifted(-1)).local(IsLocal::InHeads));
    let widths = || {
        [4, 8, 16, 32, 64, 128, 256]
            .into_iter()
            .filter(|width| 2 * width <= known.n_longest)
    };
    for n in widths().take(4) {
        let name = format!("the first {n} tokens seen by all");
        all.push(reading(name, "", MaskOverride::Prefix(n)).local(IsLocal::InLayers));
    }
    all.extend(windows(known.spec(), &masks, &reading));
    if masks.iter().all(|mask| mask.window.is_none()) {
        for width in widths() {
            let name = format!("a window of {width} keys");
            let advice = format!("--set window={width}");
            let reading = reading(name, &advice, MaskOverride::Window(width)).acting_far();
            all.push(reading.local(IsLocal::InLayers));
        }
    }
    all
}

/// Readings that change a declared window.
fn windows(
    spec: &ModelSpec,
    masks: &[Mask],
    reading: &impl Fn(String, &str, MaskOverride) -> Reading,
) -> Vec<Reading> {
    if masks.iter().all(|mask| mask.window.is_none()) {
        return Vec::new();
    }
    let none = reading(
        "no window".to_owned(),
        "--set window=none",
        MaskOverride::Causal,
    );
    let mut all = vec![none.acting_far().local(IsLocal::InLayers)];
    let with = |name: &str, change: &dyn Fn(usize, Mask) -> Mask| {
        let mut changed = spec.clone();
        let last = changed.stacks.len() - 1;
        let blocks = changed.stacks[last].blocks_mut().iter_mut();
        for (layer_idx, own) in blocks.filter_map(BlockSpec::own_mut).enumerate() {
            own.attention.mask = change(layer_idx, own.attention.mask);
        }
        (changed != *spec).then(|| {
            Reading::new(FAMILY.id, name, "")
                .with_attention(Arc::new(changed))
                .acting_far()
        })
    };
    let wider = |by: isize| {
        move |_: usize, mask: Mask| Mask {
            window: mask.window.map(|window| window.wider(by)),
            ..mask
        }
    };
    let local = |reading: Option<Reading>| reading.map(|one| one.local(IsLocal::InLayers));
    all.extend(local(with("a window of one key more", &wider(1))));
    all.extend(local(with("a window of one key less", &wider(-1))));
    all.extend(with(
        "the windows in the other layers",
        &|layer_idx, mask| Mask {
            window: masks[(layer_idx + 1) % masks.len()].window,
            ..mask
        },
    ));
    all.extend(exchanged(spec));
    all
}

/// Local and global layers exchanged with all that tells them apart: windows and rotary embeddings.
fn exchanged(spec: &ModelSpec) -> Option<Reading> {
    let blocks = spec.main_stack().blocks();
    let own: Vec<_> = blocks.iter().filter_map(BlockSpec::attention).collect();
    let first_of = |has_window: bool| {
        let mut all = own.iter();
        all.find(|one| one.mask.window.is_some() == has_window)
    };
    let (local, global) = (first_of(true)?, first_of(false)?);
    if local.rope == global.rope || own.iter().any(|one| one.d_head != local.d_head) {
        return None;
    }
    let mut changed = spec.clone();
    let last = changed.stacks.len() - 1;
    let blocks = changed.stacks[last].blocks_mut().iter_mut();
    for own in blocks.filter_map(BlockSpec::own_mut) {
        let other = if own.attention.mask.window.is_some() {
            global
        } else {
            local
        };
        own.attention.mask = other.mask;
        own.attention.rope.clone_from(&other.rope);
    }
    let name = "local and global layers exchanged, with their rotary bases";
    Some(Reading::new(FAMILY.id, name, "").with_attention(Arc::new(changed)))
}
