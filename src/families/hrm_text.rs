//! HRM-Text: two stacks of Llama's blocks with gated heads, which run in turns on two states; each turn begins with the sum of both.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{
    BlockRow, BlockSpec, FeedForward, Join, KeptStart, Layers, LinearSource, ModelSpec, Part,
    RowSpec,
};

use super::Family;
use super::reading::llama_like::{
    self, BiasRule, FactorRule, NormStyle, RMS, Recipe, Sizes, dense_layers,
};
use super::reading::{linear, prefix};

pub const FAMILY: Family = Family::own("hrm_text", "HrmText", read).leaving_unread(&[BEGINNING]);

/// The state that the lower stack begins with: zeros, which are never trained.
const BEGINNING: &str = "z_L_init";

/// The lower and the upper stack, of a class with a head and of one without.
const STACKS: [(&str, [&str; 2]); 2] = [
    ("model.", ["model.L_module.", "model.H_module."]),
    ("", ["L_module.", "H_module."]),
];

fn recipe(reader: &Reader<'_>, base: &'static str) -> Recipe {
    Recipe {
        norm: NormStyle {
            has_gain: false,
            ..RMS
        },
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        head_gate: Some("gate_proj"),
        embed_scale: if reader.is_stated("embedding_scale") {
            FactorRule::KeyIfStated("embedding_scale")
        } else {
            FactorRule::InverseKey("initializer_range", 0.02)
        },
        base: Some(base),
        ..Recipe::llama()
    }
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let base = prefix(tensors, &["model.", ""], "embed_tokens.weight");
    let stacks = STACKS.iter().find(|(of, _)| *of == base);
    let [lower, upper] = stacks.map_or(STACKS[0].1, |(_, stacks)| *stacks);
    let (n_each, turns) = turns(reader)?;
    let stack = |reader: &mut Reader<'_>, base: &'static str| -> Result<ModelSpec> {
        let sizes = Sizes {
            n_layers: n_each,
            ..Sizes::read(reader, Some(128))?
        };
        let recipe = recipe(reader, base);
        let mlp = dense_layers(reader, &recipe, sizes.d_model, "mlp_bias")?;
        let family = FAMILY.model_type;
        let mut spec = llama_like::read_with(family, checkpoint, reader, &recipe, sizes, &mlp)?;
        let blocks = spec.stacks[0].blocks_mut().iter_mut();
        blocks.for_each(|block| as_stored(block, tensors));
        Ok(spec)
    };
    let of_lower = stack(&mut Reader::new(&checkpoint.config), lower)?;
    let mut spec = stack(reader, upper)?;
    let d_model = spec.d_model;
    let last = spec.stacks[0].final_norm.clone();
    let n_turns = turns.len();
    let mut blocks = Vec::with_capacity(n_turns * n_each);
    for (turn_idx, (is_upper, join)) in turns.into_iter().enumerate() {
        let stack = if is_upper { &spec } else { &of_lower };
        for (idx, block) in stack.main_stack().blocks().iter().enumerate() {
            // What a turn gives is normed; for the last one, that is the last norm.
            let ends = idx + 1 == n_each && turn_idx + 1 < n_turns;
            blocks.push(BlockSpec {
                mlp_post: last.clone().filter(|_| ends),
                row: Some(Box::new(BlockRow {
                    beside: false,
                    d_model,
                    streams: None,
                    n_kept: d_model,
                    shortcut: None,
                    join: join.filter(|_| idx == 0),
                })),
                ..block.clone()
            });
        }
    }
    let words = format!("{base}embed_tokens.weight");
    if let Some(head) = &mut spec.head
        && head.unembed.weight == spec.stacks[0].embed.tokens.tensor
    {
        head.unembed.weight.clone_from(&words);
    }
    let stack = &mut spec.stacks[0];
    stack.embed.tokens.tensor = words;
    stack.layers = Layers::Blocks(blocks);
    stack.rows = Some(Box::new(RowSpec {
        first: KeptStart::Nothing,
        d_model,
        streams: None,
        n_kept: d_model,
    }));
    check_beginning(checkpoint, &format!("{base}{BEGINNING}"), d_model)?;
    for key in ["L_bp_cycles", "prefix_lm", "initializer_range"] {
        reader.value(key);
    }
    reader.remark("a text is read as an answer: tokens see those before them alone".to_owned());
    Ok(spec)
}

/// Finds the maps of a block in the tensors that files have: gate, queries, keys and values in one, gate and up in another.
fn as_stored(block: &mut BlockSpec, tensors: &Tensors) {
    let Some(own) = block.own_mut() else {
        return;
    };
    let maps = &mut own.projections;
    let is_stored = |name: &String| tensors.contains(name);
    let Some(at) = maps.q.weight.strip_suffix("self_attn.q_proj.weight") else {
        return;
    };
    let at = at.to_owned();
    if let Some(gate) = &mut maps.gate {
        gate.bias = Some(format!("{at}self_attn.gate_proj.bias")).filter(is_stored);
    }
    let fused = format!("{at}attn.gqkv_proj.weight");
    if tensors.contains(&fused) {
        let parts = maps
            .gate
            .iter_mut()
            .chain([&mut maps.q, &mut maps.k, &mut maps.v]);
        for (idx, map) in parts.enumerate() {
            *map = part_of(&fused, map, (idx, 4));
        }
        let o = format!("{at}attn.o_proj");
        maps.o = linear(&o, maps.o.n_in, maps.o.n_out(), maps.o.bias.is_some());
    }
    let fused = format!("{at}mlp.gate_up_proj.weight");
    if let (FeedForward::Dense(mlp), true) = (&mut block.feed_forward, tensors.contains(&fused)) {
        let parts = mlp.gate.iter_mut().chain([&mut mlp.up]);
        for (idx, map) in parts.enumerate() {
            *map = part_of(&fused, map, (idx, 2));
        }
    }
}

/// A map that is one of several in a tensor, whose bias is stored by itself.
fn part_of(fused: &str, map: &LinearSource, (idx, n_parts): (usize, usize)) -> LinearSource {
    let len = map.n_out();
    let part = Part {
        group: n_parts * len,
        offset: idx * len,
        len,
    };
    LinearSource {
        bias: map.bias.clone(),
        bias_is_of_part: true,
        ..LinearSource::whole(fused.to_owned(), None, map.n_in, part.group).part(part)
    }
}

/// A turn of a stack: whether it is the upper one's, and how it begins.
type Turn = (bool, Option<Join>);

/// The number of blocks of a stack, and the turns of both.
fn turns(reader: &mut Reader<'_>) -> Result<(usize, Vec<Turn>)> {
    const ALL: &str = "num_hidden_layers";
    const EACH: &str = "num_layers_per_stack";
    let default = |key: &str| Origin::Default(key.to_owned());
    let n_upper = reader.size_or("upper_turns", "H_cycles", 2, default("H_cycles"))?;
    let n_lower = reader.size_or("lower_turns", "L_cycles", 3, default("L_cycles"))?;
    let n_all = reader.layers(ALL)?;
    // Older files state the blocks of one stack alone.
    let n_each = reader.size_or("layers_each", EACH, n_all, default(EACH))?;
    let n_turns = n_lower.saturating_add(1).saturating_mul(n_upper);
    let is_whole = reader.value(EACH).is_some();
    if n_turns > 4096 || is_whole && n_turns.saturating_mul(n_each) != n_all {
        let problem = format!(
            "expected {n_upper} times {n_lower} lower turns and an upper one, of {n_each} blocks each, found {n_all}"
        );
        return Err(Error::config(reader.path(), ALL, problem));
    }
    let mut turns = Vec::with_capacity(n_turns);
    for _ in 0..n_upper {
        // The other stack's state was worked on last.
        turns.push((false, Some(Join::AddsAndSwaps)));
        turns.extend((1..n_lower).map(|_| (false, Some(Join::Adds))));
        turns.push((true, Some(Join::AddsAndSwaps)));
    }
    Ok((n_each, turns))
}

/// Refuses a beginning that is not zeros.
fn check_beginning(checkpoint: &Checkpoint, name: &str, d_model: usize) -> Result<()> {
    let tensors = &checkpoint.tensors;
    if !tensors.contains(name) {
        return Ok(());
    }
    let stored = tensors.expect(name, &[d_model])?.widen()?;
    match stored.iter().find(|value| **value != 0.0) {
        Some(found) => {
            let problem = format!("expected zeros, found {found}");
            Err(Error::tensor(tensors.file_of(name), name, problem))
        }
        None => Ok(()),
    }
}
