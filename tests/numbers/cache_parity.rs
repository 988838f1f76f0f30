//! Tokens that follow others one by one give the rows of a run of all of them, bit for bit, in every family.

use std::collections::BTreeMap;

use attnscope_engine::analysis::{
    Options, Outcome, Silent, Tap, Writer, WriterMemory, input_of, run,
};
use attnscope_engine::attention::RowSummary;
use attnscope_engine::checkpoint::Checkpoint;
use attnscope_engine::family;
use attnscope_engine::model::{Input, Model, Recomputed, Sequence};
use attnscope_engine::ops::Cpu;
use attnscope_engine::prompt::{Reading, prepare};
use safetensors::SafeTensors;
use testing::oracle_case::{cases, reference_bytes, request_of};
use testing::oracle_tap::Collected;

type Values = BTreeMap<String, Vec<f32>>;

/// Everything that a run of all tokens together gives.
fn prefill(model: &Model, input: &Input) -> Values {
    let mut tap = Collected::default();
    let options = Options {
        keep_bytes: None,
        predicts: true,
    };
    let _: Outcome = run(
        &Cpu,
        model,
        input,
        options,
        &mut Silent,
        Some(&mut tap as &mut dyn Tap),
        &|| false,
    )
    .expect("runs");
    tap.finish()
}

fn first(sequence: &Sequence, n: usize) -> Sequence {
    Sequence {
        tokens: sequence.tokens[..n].to_vec(),
        positions: sequence.positions[..n].to_vec(),
        real: sequence.real.as_ref().map(|real| real[..n].to_vec()),
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The rows of some queries among those of all. // [head, query, key] or [query, width]
fn rows_of(name: &str, all: &[f32], n: usize, queries: std::ops::Range<usize>) -> Vec<f32> {
    let is_by_head = name.ends_with("pattern") || name.ends_with("scores");
    if !is_by_head {
        let width = all.len() / n;
        return all[queries.start * width..queries.end * width].to_vec();
    }
    // A head's map is n rows of as many keys as it has; how many heads there are follows from what one row of all heads holds.
    let n_keys_and_heads = all.len() / n;
    let n_keys = if name.contains("cross") { 0 } else { n };
    if n_keys == 0 {
        return Vec::new();
    }
    let n_heads = n_keys_and_heads / n_keys;
    (0..n_heads)
        .flat_map(|head_idx| {
            let head = &all[head_idx * n * n_keys..][..n * n_keys];
            head[queries.start * n_keys..queries.end * n_keys].to_vec()
        })
        .collect()
}

/// What differs first between a run of all tokens and one of the last few after the others.
fn differs(model: &Model, input: &Input, n_before: usize) -> Result<bool, String> {
    let n = input.sequence.len();
    let all = prefill(model, input);
    let go_on = || false;
    let mut writer = Writer::new(&Cpu, model, usize::MAX, &go_on);
    let part = |n: usize| Input {
        source: input.source.clone(),
        sequence: first(&input.sequence, n),
    };
    writer.read(&part(n_before), None).map_err(|e| e.to_string())?;
    let is_kept = Recomputed::of(model.spec.main_stack()).is_none();
    let mut n_compared = 0;
    for len in n_before + 1..=n {
        let mut tap = Collected::default();
        let told = writer
            .read(&part(len), Some(&mut tap as &mut dyn Tap))
            .map_err(|e| e.to_string())?;
        let n_rows = if writer.recomputed().is_none() { 1 } else { len };
        let step = tap.finish();
        for (name, found) in &step {
            let is_of_encoder = name.starts_with("encoder.") || name == "logits";
            let Some(whole) = all.get(name).filter(|_| !is_of_encoder) else {
                continue;
            };
            let is_key = [".k", ".v", ".rot_k"].iter().any(|end| name.ends_with(end));
            if name.contains("cross") && is_key {
                continue;
            }
            let is_map = name.ends_with("pattern") || name.ends_with("scores");
            let mut expected = if is_map && name.contains("cross") {
                let n_keys = input.source.as_ref().map_or(0, Sequence::len);
                let n_heads = whole.len() / n / n_keys;
                let row = |head_idx: usize, query: usize| {
                    whole[(head_idx * n + query) * n_keys..][..n_keys].to_vec()
                };
                (0..n_heads)
                    .flat_map(|head| (len - n_rows..len).flat_map(move |q| vec![(head, q)]))
                    .flat_map(|(head, query)| row(head, query))
                    .collect()
            } else {
                rows_of(name, whole, n, len - n_rows..len)
            };
            if is_map && !name.contains("cross") {
                // Keys after those that have been read are not there yet.
                let rows: Vec<f32> = expected
                    .chunks(n)
                    .flat_map(|row| row[..len].to_vec())
                    .collect();
                expected = rows;
            }
            if bits(found) != bits(&expected) {
                let at = found.iter().zip(&expected).position(|(a, b)| a.to_bits() != b.to_bits());
                return Err(format!("{name} of {n_rows} rows at {len} differs: {at:?}"));
            }
            n_compared += 1;
        }
        if model.spec.head.as_ref().is_some_and(|head| head.labels.is_none()) {
            let found = writer.logits().map_err(|e| e.to_string())?;
            let logits = &all["logits"];
            let expected = &logits[(len - 1) * found.len()..len * found.len()];
            if bits(&found) != bits(expected) {
                return Err(format!("logits after {len} tokens differ"));
            }
        }
        let rows: Vec<&RowSummary> = told
            .iter()
            .filter_map(|ran| ran.attention.as_ref())
            .flat_map(|attention| attention.heads.iter().flat_map(|head| &head.rows))
            .collect();
        if is_kept && writer.recomputed().is_none() && rows.iter().any(|row| row.mass.is_nan()) {
            return Err("a row summary is not a number".to_owned());
        }
    }
    if n_compared == 0 {
        return Err("nothing was compared".to_owned());
    }
    Ok(is_kept)
}

#[test]
fn every_family_goes_on_from_what_it_has_read() {
    let (mut told, mut n_kept, mut n_again) = (Vec::new(), 0, 0);
    for case in cases() {
        let model = Checkpoint::open(&case.join("model")).and_then(family::read);
        let model = model.expect("is read");
        let bytes = reference_bytes(&case);
        let reference = SafeTensors::deserialize(&bytes).expect("a reference");
        let request = request_of(&reference);
        let reading = Reading::Ids("cases are ids".to_owned());
        let prompt = prepare(&request, &reading, model.spec.limits()).expect("fits");
        let input = input_of(&prompt);
        let is_decoder = model.spec.is_causal_lm || model.spec.decoder_start.is_some();
        let n = input.sequence.len();
        if !is_decoder || n < 3 {
            continue;
        }
        match differs(&model, &input, n - 2) {
            Ok(true) => n_kept += 1,
            Ok(false) => n_again += 1,
            Err(problem) => told.push(format!("{}: {problem}", case.display())),
        }
        let memory = WriterMemory::of(&model, n, 0);
        assert!(memory.weights > 0);
    }
    assert!(told.is_empty(), "{}", told.join("\n"));
    println!("{n_kept} go on, {n_again} run again");
    assert!(n_kept > 100 && n_again < n_kept / 10, "{n_kept} {n_again}");
}
