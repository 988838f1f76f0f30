//! Tokens that follow others one by one give the rows of a run of all of them, bit for bit, in every family.

use std::collections::BTreeMap;
use std::path::PathBuf;

use attnscope_checks::stats::LayerReport;
use attnscope_compute::attention::RowSummary;
use attnscope_compute::ops::Cpu;
use attnscope_forward::{Input, Sequence};
use attnscope_prompt::{PromptForm, prepare};
use attnscope_run::{
    Layers, Options, Outcome, Tap, Writer, WriterMemory, input_of, run, with_what_ifs,
};
use attnscope_spec::{Model, Stack};
use safetensors::SafeTensors;
use testing::effort::{one_of_each, tries_all};
use testing::oracle_case::{cases, model_of, reference_bytes, request_of};
use testing::oracle_tap::Collected;

type Values = BTreeMap<String, Vec<f32>>;

/// Everything that a run of all tokens together gives.
fn prefill(model: &Model, input: &Input) -> (Vec<LayerReport>, Values) {
    let (mut tap, mut layers) = (Collected::default(), Layers::default());
    let options = Options {
        keep_bytes: None,
        predicts: true,
    };
    let _: Outcome = run(
        &Cpu,
        model,
        input,
        options,
        &mut layers,
        Some(&mut tap as &mut dyn Tap),
        &|| false,
    )
    .expect("runs");
    (layers.0, tap.finish())
}

fn first(sequence: &Sequence, n: usize) -> Sequence {
    Sequence {
        picture: None,
        tokens: sequence.tokens[..n].to_vec(),
        positions: sequence.positions[..n].to_vec(),
        real: sequence.real.as_ref().map(|real| real[..n].to_vec()),
        ..Sequence::default()
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The last rows of a value. // [head, query, key] for maps, [query, width] for others
fn last_rows(name: &str, all: &[f32], n: usize, n_rows: usize, n_keys: usize) -> Vec<f32> {
    let is_map = name.ends_with("pattern") || name.ends_with("scores");
    let per_map = if is_map { n * n_keys } else { all.len() };
    let maps = all.chunks(per_map.max(1));
    maps.flat_map(|map| map[map.len() / n * (n - n_rows)..].to_vec())
        .collect()
}

/// Whether a model goes on from what it has read, or runs all of it again.
///
/// # Errors
/// Says what differs first from a run of all tokens together.
fn compare(model: &Model, input: &Input, n_before: usize) -> Result<bool, String> {
    let go_on = || false;
    let mut writer = Writer::new(&Cpu, model, usize::MAX, &go_on);
    let part = |n: usize| Input {
        source: input.source.clone(),
        sequence: first(&input.sequence, n),
    };
    let read = |writer: &mut Writer<'_, Cpu>, n: usize| {
        let mut tap = Collected::default();
        let told = writer.read(&part(n), Some(&mut tap as &mut dyn Tap));
        told.map(|told| (told, tap.finish()))
            .map_err(|e| e.to_string())
    };
    read(&mut writer, n_before)?;
    let (mut n_compared, mut goes_on) = (0, true);
    for len in n_before + 1..=input.sequence.len() {
        let (layers, whole) = prefill(model, &part(len));
        let n_run = writer.n_rows_run();
        let (told, step) = read(&mut writer, len)?;
        let n_rows = writer.n_rows_run() - n_run;
        goes_on &= n_rows == 1;
        for (name, found) in &step {
            // Keys of an encoder's output are those of the first run.
            let is_key = [".k", ".v", ".rot_k"].iter().any(|end| name.ends_with(end));
            let is_cross = name.contains("cross_attn");
            if name == "logits" || is_cross && is_key {
                continue;
            }
            let n_keys = match input.encoded(&model.spec) {
                Some(seen) if is_cross => seen.len(),
                _ => len,
            };
            // Of all keys, not of rows of queries.
            let expected = if name.ends_with(".value_norms") {
                whole[name].clone()
            } else {
                last_rows(name, &whole[name], len, n_rows, n_keys)
            };
            if bits(found) != bits(&expected) {
                return Err(format!("{name}: {n_rows} rows of {len} differ"));
            }
            n_compared += 1;
        }
        if model
            .spec
            .head
            .as_ref()
            .is_some_and(|head| head.labels.is_none())
        {
            let found = writer.logits().map_err(|e| e.to_string())?;
            if bits(&found) != bits(&last_rows("logits", &whole["logits"], len, 1, 0)) {
                return Err(format!("logits after {len} tokens differ"));
            }
        }
        let attentions = told
            .iter()
            .flat_map(|ran| ran.attention.iter().chain(&ran.cross));
        let rows =
            |summaries: &[RowSummary]| format!("{:?}", &summaries[summaries.len() - n_rows..]);
        let found: Vec<String> = attentions
            .flat_map(|attention| attention.heads.iter().map(|head| rows(&head.rows)))
            .collect();
        let of_decoder = layers.iter().filter(|layer| layer.stack != Stack::Encoder);
        let expected: Vec<String> = of_decoder
            .flat_map(|layer| layer.heads.iter().map(|head| rows(&head.summary.rows)))
            .collect();
        if found != expected {
            return Err(format!("summaries of rows after {len} tokens differ"));
        }
    }
    if n_compared == 0 {
        return Err("nothing was compared".to_owned());
    }
    Ok(goes_on)
}

/// The cases of models that write, with their prompts.
pub(super) fn writing_cases(
    cases: impl IntoIterator<Item = PathBuf>,
) -> impl Iterator<Item = (PathBuf, Model, Input)> {
    cases.into_iter().filter_map(|case| {
        let model = model_of(&case).expect("is read");
        let bytes = reference_bytes(&case);
        let reference = SafeTensors::deserialize(&bytes).expect("a reference");
        let prompt_form = PromptForm::Ids("cases are ids".to_owned());
        let request = request_of(&case, &reference);
        let prompt = prepare(&request, &prompt_form, model.spec.limits()).expect("fits");
        let input = input_of(&prompt);
        let writes = model.spec.head.is_some()
            && (model.spec.is_causal_lm || model.spec.decoder_start.is_some());
        (writes && input.sequence.len() > 2).then_some((case, model, input))
    })
}

#[test]
fn every_family_goes_on_from_what_it_has_read() {
    let (mut told, mut n_kept, mut again) = (Vec::new(), 0, Vec::new());
    for (case, model, input) in writing_cases(one_of_each(cases())) {
        match compare(&model, &input, input.sequence.len() - 2) {
            Ok(true) => n_kept += 1,
            Ok(false) => again.push(case.file_name().expect("a name").to_owned()),
            Err(problem) => told.push(format!("{}: {problem}", case.display())),
        }
    }
    assert!(told.is_empty(), "{}", told.join("\n"));
    let least = if tries_all() { 100 } else { 60 };
    assert!(n_kept > least, "{n_kept}");
    // The queries of a detector see each other.
    again.retain(|name| {
        // Pools, and one softmax with an encoder, are made anew.
        const ANEW: [&str; 5] = [
            "conditional_detr",
            "deepseek_v4",
            "detr",
            "t5gemma2",
            "table_transformer",
        ];
        ANEW.iter().any(|of| name == of)
    });
    // Frequencies that change with the length of a text, beyond the model's context.
    assert!(again.len() <= 2, "{again:?}");
}

/// What an engine changes of its cache holds for each token on its own.
#[test]
fn models_as_an_engine_serves_them_go_on_from_what_they_have_read() {
    const CHOSEN: [&str; 11] = [
        "llama",
        "gpt2",
        "gemma2_b",
        "deepseek_v3",
        "deepseek_v32",
        "glm_moe_dsa",
        "hy_v4",
        "glm5_next",
        "inkling_text",
        "minimax_m3_vl_text",
        "t5_v11",
    ];
    let is_chosen = |case: &PathBuf| CHOSEN.iter().any(|name| case.ends_with(name));
    let words = [
        "kv=int8",
        "kv_window=5+sinks:1",
        "top_k_keys=3",
        "weights=fp8",
    ];
    let changes = words.map(|word| word.parse().expect(word));
    let mut n_kept = 0;
    for (case, model, input) in writing_cases(cases().into_iter().filter(is_chosen)) {
        let spec = with_what_ifs(&model.spec, &changes).expect("possible");
        let goes_on = compare(&model.with_spec(spec), &input, input.sequence.len() - 2);
        assert_eq!(goes_on, Ok(true), "{}", case.display());
        n_kept += 1;
    }
    assert!(n_kept > 3, "{n_kept}");
}

#[test]
fn an_edited_end_reads_only_what_is_new() {
    const CHOSEN: [&str; 21] = [
        "llama",
        "longcat_flash",
        "deepseek_v32",
        "glm_moe_dsa",
        "hy_v4",
        "glm5_next",
        "inkling_text",
        "minimax_m3_vl_text",
        "gpt2_b",
        "t5",
        "lfm2",
        "bamba",
        "falcon_h1",
        "jamba",
        "gemma4_text_d",
        "minimax",
        "qwen3_next",
        "recurrent_gemma",
        "mistral_large4",
        "zamba",
        "zamba2",
    ];
    let is_chosen = |case: &PathBuf| CHOSEN.iter().any(|name| case.ends_with(name));
    for (case, model, input) in writing_cases(cases().into_iter().filter(is_chosen)) {
        let name = case
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a name");
        let go_on = || false;
        let mut edited = input.clone();
        let n = edited.sequence.len();
        edited.sequence.tokens[n - 2] ^= 1;
        let mut writer = Writer::new(&Cpu, &model, usize::MAX, &go_on);
        writer.read(&input, None).expect("reads");
        let n_run = writer.n_rows_run();
        writer.read(&edited, None).expect("reads the edited text");
        // Another mixer keeps what it made of all tokens: there is nothing to go back to.
        let mut blocks = model.spec.main_stack().blocks().iter();
        let mixes_otherwise =
            blocks.any(|block| block.other_mixer().is_some() || block.convolves());
        let n_again = if mixes_otherwise { n } else { 2 };
        assert_eq!(writer.n_rows_run() - n_run, n_again, "{name}");
        let mut new = Writer::new(&Cpu, &model, usize::MAX, &go_on);
        new.read(&edited, None).expect("reads anew");
        let logits = [&mut writer, &mut new].map(|writer| writer.logits().expect("a head"));
        assert_eq!(bits(&logits[0]), bits(&logits[1]), "{name}");
        // Weights that are read again for every token give the same bits as those that are held.
        let mut poor = Writer::new(&Cpu, &model, 0, &go_on).with_past(writer.into_past());
        let mut longer = edited.clone();
        for writer in [&mut poor, &mut new] {
            longer.sequence.tokens.resize(n + 1, 1);
            longer.sequence.positions.resize(n + 1, n);
            longer.sequence.positions[n] = longer.sequence.positions[n - 1] + 1;
            writer.read(&longer, None).expect("reads on");
        }
        let logits = [&mut poor, &mut new].map(|writer| writer.logits().expect("a head"));
        assert_eq!(bits(&logits[0]), bits(&logits[1]), "{name}");
        let held = [&poor, &new].map(|writer| writer.memory().expect("memory"));
        assert_eq!(held[0].keys_and_values, held[1].keys_and_values, "{name}");
        assert!(held[0].weights == 0 && held[1].weights > 0, "{name}");
        let n_source = input.source.as_ref().map_or(0, Sequence::len);
        let told = WriterMemory::of(&model, n + 1, n_source);
        assert_eq!(held[1], told, "{name}: what was told before");
    }
}
