//! Pages of the docs that the program writes: equal to what is committed, or rewritten under `UPDATE=1`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use attnscope_checkpoint::{Checkpoint, Opening};
use attnscope_compute::attention::{AttentionSpec, Bias, KeyRank};
use attnscope_report::{SCHEMAS, schema};
use attnscope_spec::{BlockSpec, FeedForward, ModelSpec, PositionTable, ProjectionSpec};
use testing::gguf_kinds::FILES;
use testing::oracle_case::model_of;

use super::generated_wrapped::{heads_table, wrapped_table};
use crate::library_layouts::CASES as LAYOUTS;

fn is_up_to_date(page: &str, content: &str) {
    is_generated(&format!("docs/{page}"), content);
}

pub fn is_generated(page: &str, content: &str) {
    let path = testing::root().join(page);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, content).expect("the page is written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        committed, content,
        "{page} is out of date: run UPDATE=1 cargo test --test commands generated_docs"
    );
}

#[test]
fn the_page_of_keys_and_settings_is_made_of_their_tables() {
    let keys = attnscope_screen::keys_page();
    let settings = attnscope_system::config::config_page();
    is_up_to_date("keys.md", &format!("{keys}\n{settings}"));
}

#[test]
fn the_page_of_exports_is_what_the_panels_say_of_their_data() {
    is_up_to_date("export.md", &attnscope_screen::export_page());
}

#[test]
fn the_page_of_statistics_is_the_registry() {
    is_up_to_date("statistics.md", &attnscope_checks::stats::statistics_page());
}

#[test]
fn the_page_of_checks_is_made_of_their_own_files() {
    is_up_to_date("checks.md", &attnscope_checks::checks_page());
}

#[test]
fn the_page_of_readings_is_made_of_the_families_own_files() {
    is_up_to_date("readings.md", &attnscope_run::readings_page());
}

#[test]
fn the_schemas_are_those_of_the_types_that_write_the_documents() {
    let mut names = BTreeSet::new();
    for (name, ..) in SCHEMAS {
        let schema = schema(name).expect("a schema");
        let text = serde_json::to_string_pretty(&schema).expect("serialises");
        is_up_to_date(&format!("schemas/{name}.json"), &(text + "\n"));
        names.insert(format!("{name}.json"));
    }
    let files = std::fs::read_dir(testing::root().join("docs/schemas")).expect("the schemas");
    let files = files.map(|file| file.expect("an entry").file_name());
    let files: BTreeSet<String> = files
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    assert_eq!(files, names);
}

#[test]
fn the_manual_pages_of_the_wheel_are_those_that_the_program_prints() {
    const PLACE: &str = "src/packaging/wheel/data/share/man/man1";
    let mut names = BTreeSet::new();
    for page in attnscope::cli::man_pages().expect("the pages") {
        is_generated(&format!("{PLACE}/{}", page.name), &page.text);
        names.insert(page.name);
    }
    let mut committed = BTreeSet::new();
    for file in std::fs::read_dir(testing::root().join(PLACE)).expect("the pages") {
        let file = file.expect("an entry");
        let name = file.file_name().to_string_lossy().into_owned();
        // A command that is no more leaves its page behind.
        if std::env::var_os("UPDATE").is_some() && !names.contains(&name) {
            std::fs::remove_file(file.path()).expect("is removed");
        } else {
            committed.insert(name);
        }
    }
    assert_eq!(committed, names);
}

/// What the cases of one family show.
#[derive(Default)]
struct Proof {
    cases: Vec<String>,
    knobs: BTreeSet<&'static str>,
}

/// One row for each `model_type` among the cases: the family that reads it, the classes that made them, what they give.
fn kinds_table(cases: &[std::path::PathBuf]) -> String {
    #[derive(Default)]
    struct Row {
        family: &'static str,
        classes: BTreeSet<String>,
        gives: BTreeSet<String>,
    }
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for case in cases {
        let config = std::fs::read(case.join("model/config.json")).expect("a configuration");
        let config: serde_json::Value = serde_json::from_slice(&config).expect("JSON");
        let word = |value: &serde_json::Value| value.as_str().unwrap_or("none").to_owned();
        let spec = model_of(case).expect("is understood").spec;
        let row = rows.entry(word(&config["model_type"])).or_default();
        row.family = spec.family;
        row.classes.insert(word(&config["architectures"][0]));
        row.gives.extend(given(&spec));
    }
    let mut table = "| `model_type` | read as | made by | gives |\n|---|---|---|---|\n".to_owned();
    let list = |words: BTreeSet<String>| words.into_iter().collect::<Vec<_>>().join(", ");
    for (kind, row) in rows {
        let (classes, gives) = (list(row.classes), list(row.gives));
        let _ = writeln!(table, "| {kind} | {} | {classes} | {gives} |", row.family);
    }
    table
}

/// What a model gives to look at, in words.
fn given(spec: &ModelSpec) -> BTreeSet<String> {
    let mut gives = BTreeSet::new();
    let mut give = |is: bool, what: &str| {
        if is {
            gives.insert(what.to_owned());
        }
    };
    let blocks = || spec.stacks.iter().flat_map(|stack| stack.blocks());
    let own = |of: &dyn Fn(&AttentionSpec) -> bool| blocks().filter_map(|b| b.attention()).any(of);
    give(spec.is_encoder_decoder(), "cross-attention");
    give(own(&|own| own.mask.causal), "causal patterns");
    give(own(&|own| !own.mask.causal), "patterns to both sides");
    let is_windowed = |own: &AttentionSpec| {
        let top = own.top_keys;
        top.is_some_and(|top| matches!(top.by, KeyRank::Window(_)))
    };
    give(
        own(&|own| own.mask.window.is_some() || is_windowed(own)),
        "windows",
    );
    give(own(&|own| own.rope.is_some()), "rotary positions");
    give(
        own(&|own| own.top_keys.is_some() && !is_windowed(own)),
        "picked keys",
    );
    give(own(&|own| matches!(own.bias, Bias::Alibi(_))), "ALiBi");
    give(
        own(&|own| matches!(own.bias, Bias::Buckets(_))),
        "buckets of distance",
    );
    give(
        own(&|own| matches!(own.bias, Bias::Relative(_))),
        "vectors of distances",
    );
    give(
        own(&|own| matches!(own.bias, Bias::Profiles(_))),
        "profiles of distances",
    );
    give(
        own(&|own| matches!(own.bias, Bias::Grid(_))),
        "distances in rows and columns",
    );
    give(own(&|own| own.growth.is_some()), "queries that grow");
    let positions = |of: fn(&PositionTable) -> bool| {
        let mut tables = spec
            .stacks
            .iter()
            .filter_map(|stack| stack.embed.positions.as_ref());
        tables.any(of)
    };
    give(
        positions(|table| table.n_rows().is_some()),
        "stored positions",
    );
    give(positions(|table| table.n_rows().is_none()), "sines");
    let has = |of: fn(&BlockSpec) -> bool| blocks().any(of);
    give(
        has(|block| matches!(block.feed_forward, FeedForward::Experts(_))),
        "experts",
    );
    give(
        has(BlockSpec::convolves),
        "convolved keys, values and outputs",
    );
    let others = blocks().filter_map(BlockSpec::other_mixer);
    others.for_each(|mixer| give(true, &format!("{}, run and named", mixer.label())));
    let projections = |of: fn(&ProjectionSpec) -> bool| {
        blocks()
            .filter_map(|block| block.own())
            .any(|own| of(&own.projections))
    };
    give(projections(|own| own.latent.is_some()), "latent vectors");
    give(
        projections(|own| {
            let steps = own.steps.as_ref();
            steps.is_some_and(|steps| steps.tables.is_some())
        }),
        "vectors of distances in rows and columns",
    );
    give(projections(|own| own.gate.is_some()), "gated heads");
    give(
        projections(|own| own.z_norm.is_some()),
        "a norm between heads and output map",
    );
    give(projections(|own| own.sinks.is_some()), "learned sinks");
    give(spec.head.is_some(), "logits");
    give(spec.head.is_none(), "hidden states");
    gives
}

/// The architectures of GGUF: what each is read as, and the file and case that prove it.
fn gguf_table() -> String {
    let mut table = String::from(
        "\n## Architectures of GGUF\n\n\
         What files may name under `general.architecture`, the family that reads them, and the case whose model a file of the\n\
         architecture gives (`cargo test --test formats gguf`). Files of `fixtures/formats/gguf_kinds` that\n\
         `convert.py` made are as llama.cpp's converter writes them. Files that converters write without a head give hidden states.\n\n\
         | architecture | read as | case |\n|---|---|---|\n",
    );
    // Files under fixtures/formats/gguf, and architectures that differ from another by their name alone.
    let elsewhere = [
        ("gemma2", "`gemma2-q8_0.gguf`"),
        ("gemma3", "as gemma-embedding, one way"),
        ("gpt2", "`gpt2-q8_0.gguf`"),
        ("llama", "`llama-f32.gguf`, `mixtral-f16.gguf` and others"),
        ("qwen2", "`qwen2-f16.gguf`"),
        ("qwen3vlmoe", "as qwen3moe"),
        ("t5encoder", "as t5, its encoder"),
    ];
    for (architecture, model_type) in attnscope_checkpoint::gguf::architectures() {
        let files = FILES
            .iter()
            .filter(|file| file.architecture == architecture);
        let mut cases: Vec<String> = files.map(|file| format!("`{}`", file.case)).collect();
        let elsewhere = elsewhere.iter().filter(|(name, _)| *name == architecture);
        cases.extend(elsewhere.map(|(_, said)| (*said).to_owned()));
        assert!(!cases.is_empty(), "{architecture}: no case proves it");
        let family = model_type.filter(|kind| !kind.is_empty());
        let _ = writeln!(
            table,
            "| {architecture} | {} | {} |",
            family.unwrap_or(architecture),
            cases.join(", ")
        );
    }
    table
}

/// The families, what each is, and what proves it: read from the sources' first lines and the cases themselves.
fn families_page() -> String {
    let root = testing::root();
    let mut proofs: BTreeMap<&str, Proof> = BTreeMap::new();
    let cases = std::fs::read_dir(root.join("fixtures/oracle")).expect("the cases");
    let cases = cases.map(|entry| entry.expect("an entry").path());
    let mut cases: Vec<_> = cases.filter(|path| path.is_dir()).collect();
    cases.sort();
    for case in &cases {
        let spec = model_of(case).expect("is understood").spec;
        let proof = proofs.entry(spec.family).or_default();
        let name = case.file_name().expect("a name").to_string_lossy();
        proof.cases.push(format!("`{name}`"));
        proof.knobs.extend(spec.knobs.iter().map(|knob| knob.name));
    }
    let n_cases = cases.len();
    let table = kinds_table(&cases);
    // Weights without a configuration: what their names and shapes leave open is said here.
    let homegrown = root.join("fixtures/formats/homegrown");
    let nothing: &[(&str, &str)] = &[];
    let encoder = [
        ("n_heads", "4"),
        ("mask", "bidirectional"),
        ("activation", "relu"),
        ("norm_first", "false"),
        ("embed_scale", "sqrt_d"),
    ];
    let translator = [
        ("n_heads", "3"),
        ("activation", "relu"),
        ("norm_first", "false"),
        ("embed_scale", "sqrt_d"),
        ("start_token", "2"),
    ];
    for (name, set) in [
        ("nanogpt", nothing),
        ("encoder", &encoder),
        ("translator", &translator),
    ] {
        let set = set
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let opening = Opening {
            set: set.collect(),
            ..Opening::from(Some(homegrown.join(name)))
        };
        let checkpoint = opening.open().expect("opens");
        let spec = attnscope_families::read(checkpoint)
            .expect("is understood")
            .spec;
        let proof = proofs.entry(spec.family).or_default();
        proof.cases.push(format!(
            "`{name}` (compared with PyTorch: `cargo test --test formats homegrown_files`)"
        ));
        proof.knobs.extend(spec.knobs.iter().map(|knob| knob.name));
    }
    let mut layouts = String::new();
    for (name, file, set) in LAYOUTS {
        let pairs = set.iter().filter_map(|set| set.split_once('='));
        let opening = Opening {
            set: pairs
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            ..Opening::from(Some(
                root.join("fixtures/formats/layouts").join(name).join(file),
            ))
        };
        let spec = opening
            .open()
            .and_then(attnscope_families::read)
            .expect("opens")
            .spec;
        let said = if set.is_empty() {
            "nothing".to_owned()
        } else {
            format!("`{}`", set.join("`, `"))
        };
        let _ = writeln!(layouts, "| {name} | {} | {said} |", spec.family);
        if spec.family == "fairseq" {
            let proof = proofs.entry(spec.family).or_default();
            proof.cases.push(format!("`{name}`"));
            proof.knobs.extend(spec.knobs.iter().map(|knob| knob.name));
        }
    }
    if let Some(proof) = proofs.get_mut("fairseq") {
        let how = "all compared with fairseq: `cargo test --test commands library_layouts`";
        proof.cases.push(how.to_owned());
    }
    for name in ["class_token", "clip", "distilled", "registers"] {
        let checkpoint = Checkpoint::open(&root.join("fixtures/formats/timm").join(name));
        let spec = attnscope_families::read(checkpoint.expect("opens"));
        let spec = spec.expect("is understood").spec;
        let proof = proofs.entry(spec.family).or_default();
        proof.cases.push(format!("`{name}`"));
        proof.knobs.extend(spec.knobs.iter().map(|knob| knob.name));
    }
    if let Some(proof) = proofs.get_mut("timm_vit") {
        let how = "all compared with timm: `cargo test --test formats timm_files`";
        proof.cases.push(how.to_owned());
    }
    let proof = proofs.entry("described").or_default();
    proof.cases.push(
        "home-grown models (guessed to their trained losses: `cargo test --test commands guesses`)"
            .to_owned(),
    );
    let directory = root.join("fixtures/seq2seq/cases");
    let mut names: Vec<String> = std::fs::read_dir(&directory)
        .expect("cases")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    for name in names {
        let checkpoint = Checkpoint::open(&directory.join(&name)).expect("opens");
        let spec = attnscope_families::read(checkpoint)
            .expect("is understood")
            .spec;
        let proof = proofs.entry(spec.family).or_default();
        proof.cases.push(format!("`{name}`"));
        proof.knobs.extend(spec.knobs.iter().map(|knob| knob.name));
    }
    if let Some(proof) = proofs.get_mut("lstm_seq2seq") {
        let how = "all compared with PyTorch within 1e-5: `cargo test --test numbers lstm_seq2seq`";
        proof.cases.push(how.to_owned());
    }
    let mut page = format!(
        "# Families\n\n\
         After this page you can tell whether attnscope reads your model, and what proves that it computes it right.\n\
         Generated from the registry of families, the sources and the cases under `fixtures/oracle/`.\n\n\
         Each family is compared with what Hugging Face transformers 5.17 to 5.24 (4.57 for `nllb-moe`; float32, eager attention) computes for small\n\
         models with random weights: {n_cases} configurations. Patterns agree within 2e-4, residuals and logits within 2e-3 relative\n\
         (`cargo test --test numbers oracle`). `fixtures/oracle/make_cases.py` makes most of them.\n\n\
         ## Kinds of models\n\n\
         What the configurations of the cases call themselves, the classes of transformers that made them, and what their models\n\
         give. A kind that is read as another family agrees with it tensor by tensor.\n\n{table}\n\
         ## Layouts of other libraries\n\n\
         Small models with random weights in the classes of each library lose on some ids what the library computes\n\
         (`cargo test --test commands library_layouts`; `fixtures/formats/make_layouts.py` makes them).\n\n\
         | checkpoint | read as | said with `--set` |\n|---|---|---|\n{layouts}\n\
         ## Packed weights, adapters and containers\n\n\
         What libraries made of small models (`make_packed.py`, `make_adapters.py` and `make_containers.py` in\n\
         `fixtures/formats`), how it is read, and what it is held against (`cargo test --test formats wrapped`).\n\n\
         | files | what they hold | read as | held against |\n|---|---|---|---|\n{}\n\
         ## Heads that give labels\n\n\
         Small models of classes of transformers whose labels are those that the class computes, for a text alone, filled up and\n\
         shorter (`cargo test --test formats heads`; `fixtures/formats/make_heads.py` makes them).\n\n\
         | files | class | read as | labels | at the |\n|---|---|---|---|---|\n{}",
        wrapped_table(),
        heads_table()
    );
    for family in attnscope_families::FAMILIES {
        let file = family.model_type.replace('-', "_");
        let source = root.join(format!("src/families/{file}.rs"));
        let source = std::fs::read_to_string(source).expect("the family's file");
        let about = source.lines().next().expect("a line");
        let about = about.trim_start_matches("//! ");
        let proof = proofs
            .get(family.model_type)
            .unwrap_or_else(|| panic!("{}: no case proves it", family.model_type));
        let knobs: Vec<&str> = proof.knobs.iter().copied().collect();
        let _ = write!(
            page,
            "\n## {}\n\n{about}\n\nCases: {}.\n\nKnobs: {}.\n",
            family.model_type,
            proof.cases.join(", "),
            knobs.join(", ")
        );
    }
    page.push_str(&gguf_table());
    page
}

#[test]
fn the_page_of_families_is_the_registry_and_every_family_has_a_case() {
    is_up_to_date("families.md", &families_page());
}
