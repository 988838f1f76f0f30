//! An alignment as a model: a decoder without layers whose states are the query words, and an encoder without any.

use std::sync::{Arc, LazyLock};

use super::sentence::Sentence;
use crate::attention::{AttentionSpec, SoftmaxAxis};
use crate::checkpoint::embeddings::Table;
use crate::checkpoint::{
    Checkpoint, Config, Knob, Origin, SetBy, Settings, Tensors, TokenizerFile,
};
use crate::model::recurrent::{ReaderSpec, Recurrence, ScoreSource, Start, WriterSpec};
use crate::model::{
    EmbedSpec, Layers, LinearSource, Model, ModelSpec, Stack, StackSpec, TableSource,
};

/// A decoder without layers, for a model that has no decoder: [`model_of`] never builds one.
static PLAIN: LazyLock<WriterSpec> = LazyLock::new(|| writer(1, SoftmaxAxis::Keys));

/// One head, its keys another text's words.
fn attention(width: usize, axis: SoftmaxAxis) -> AttentionSpec {
    AttentionSpec {
        softmax_axis: axis,
        is_cross: true,
        ..AttentionSpec::plain(1, 1, width, false)
    }
}

/// A decoder without layers: what it is given is what it asks with.
fn writer(width: usize, axis: SoftmaxAxis) -> WriterSpec {
    WriterSpec {
        layers: Vec::new(),
        start: Start::Zeros,
        feeds_back: false,
        attention: attention(width, axis),
        scores: ScoreSource::Dot,
        qk_norm: false,
        ablation: None,
        combine: LinearSource::whole(String::new(), None, width, width),
    }
}

/// The model of two sentences.
pub(super) fn model_of(tables: &[Table; 2], sentences: &[Sentence; 2], axis: SoftmaxAxis) -> Model {
    let [queries, keys] = tables.each_ref().map(|table| &table.embeddings);
    let width = queries.width;
    let stack = |stack: Stack, n_rows: usize, network: Recurrence| {
        let table = TableSource {
            tensor: String::new(),
            n_rows,
            width,
        };
        StackSpec {
            stack,
            layers: Layers::Recurrent(network),
            ..StackSpec::only(EmbedSpec::plain(table), Vec::new(), None)
        }
    };
    let reader = Recurrence::Reader(ReaderSpec { layers: Vec::new() });
    let encoder = stack(Stack::Encoder, keys.n_rows, reader);
    let writer = Recurrence::Writer(Box::new(writer(width, axis)));
    let decoder = stack(Stack::Decoder, queries.n_rows, writer);
    let [of_queries, of_keys] = sentences;
    let spec = ModelSpec {
        stacks: vec![encoder, decoder.clone()],
        knobs: knobs_of(tables, [of_queries, of_keys], axis),
        ..ModelSpec::of_one_stack("alignment", decoder, None)
    };
    let checkpoint = Checkpoint {
        name: format!("{} → {}", queries.name(), keys.name()),
        config: Config::absent(&queries.path),
        tensors: Tensors::default(),
        tokenizer: TokenizerFile::Missing,
        beside: serde_json::Map::new(),
        settings: Settings::default(),
        described_by: Vec::new(),
    };
    Model {
        checkpoint: Arc::new(checkpoint),
        spec,
    }
}

/// Where the attention of an alignment stands in its model.
pub(super) fn writer_of(spec: &ModelSpec) -> &WriterSpec {
    match spec.main_stack().recurrence() {
        Some(Recurrence::Writer(writer)) => writer,
        _ => &PLAIN,
    }
}

/// What there is to say of both tables and sentences, line by line.
pub(super) fn knobs_of(
    tables: &[Table; 2],
    [queries, keys]: [&Sentence; 2],
    axis: SoftmaxAxis,
) -> Vec<Knob> {
    let asked = || Origin::Set(SetBy::CommandLine);
    let table = |table: &Table| {
        let of = &table.embeddings;
        format!("{} × {}, {}", of.n_rows, of.width, of.stored_as)
    };
    let words = |sentence: &Sentence| {
        let (unknown, zero) = (sentence.unknown(), sentence.zero());
        let mut said = format!("{}, {} unknown", sentence.words.len(), unknown.len());
        if !unknown.is_empty() {
            said += &format!(" ({})", unknown.join(", "));
        }
        if !zero.is_empty() {
            said += &format!("; rows of zeros: {}", zero.join(", "));
        }
        said
    };
    let dictionary = |table: &Table| format!("{} words", table.dictionary.len());
    let file = |path: &std::path::Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Origin::Derived(name.into_owned())
    };
    let knob = |name: &'static str, value: String, origin: Origin| Knob {
        name,
        value,
        origin,
    };
    let [query_table, key_table] = tables;
    let width = query_table.embeddings.width;
    vec![
        knob(
            "queries",
            table(query_table),
            file(&query_table.embeddings.path),
        ),
        knob("keys", table(key_table), file(&key_table.embeddings.path)),
        knob("query words", words(queries), asked()),
        knob("key words", words(keys), asked()),
        knob(
            "query dictionary",
            dictionary(query_table),
            file(query_table.dictionary.path()),
        ),
        knob(
            "key dictionary",
            dictionary(key_table),
            file(key_table.dictionary.path()),
        ),
        knob("scores", format!("q·k/√{width}"), Origin::Family),
        knob("softmax_axis", axis.to_string(), asked()),
        knob("values", "the keys".to_owned(), Origin::Family),
        knob(
            "output",
            format!("{} × {width}", queries.words.len()),
            Origin::Derived("weights × keys".to_owned()),
        ),
    ]
}
