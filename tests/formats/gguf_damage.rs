//! Damaged and dishonest GGUF files: each is refused in one line or read correctly, never a panic, never much memory.

use std::path::Path;

use attnscope_checkpoint::Checkpoint;
use testing::effort::tries;
use testing::gguf_pieces::{
    BOOL, LIST, Pieces, Place, TEXT, U32, entry, number, tensor, text, word,
};

#[test]
fn the_sound_file_that_the_others_are_damaged_from_opens() {
    let place = Place::default();
    let opened = attnscope_checkpoint::gguf::open_file(&place.write(&Pieces::sound().bytes()))
        .expect("opens");
    let embedding = opened
        .tensors
        .info("model.embed_tokens.weight")
        .expect("an embedding");
    assert_eq!(embedding.shape, [3, 4]);
    assert_eq!(
        opened.config.get("vocab_size").and_then(|v| v.as_u64()),
        Some(3)
    );
    assert!(opened.vocabulary.is_none());
    let old = Pieces {
        version: 2,
        ..Pieces::sound()
    };
    attnscope_checkpoint::gguf::open_file(&place.write(&old.bytes())).expect("opens");
}

#[test]
fn each_lie_in_a_header_is_refused_with_its_place() {
    let sound = Pieces::sound;
    let many = u64::MAX.to_le_bytes();
    let nested: Vec<u8> = (0..40)
        .flat_map(|_| [&LIST.to_le_bytes()[..], &1u64.to_le_bytes()].concat())
        .collect();
    let list_of = |kind: u32, len: u64| [&kind.to_le_bytes()[..], &len.to_le_bytes()].concat();
    let cases: Vec<(Pieces, &str)> = vec![
        (
            Pieces {
                version: 1,
                ..sound()
            },
            "version 2 or 3, found 1",
        ),
        (
            Pieces {
                version: 3u32.swap_bytes(),
                ..sound()
            },
            "big-endian",
        ),
        (
            Pieces {
                n_tensors: Some(u64::MAX),
                ..sound()
            },
            "the number of tensors is",
        ),
        (
            Pieces {
                n_tensors: Some(3),
                ..sound()
            },
            "tensor 2",
        ),
        (
            Pieces {
                n_entries: Some(1 << 60),
                ..sound()
            },
            "the number of metadata entries is",
        ),
        (
            sound().entry(number("general.alignment", 0)),
            "general.alignment: expected a power of two, found 0",
        ),
        (
            sound().entry(number("general.alignment", 48)),
            "expected a power of two, found 48",
        ),
        (
            sound().entry(number("general.alignment", 1 << 31)),
            "truncated or damaged",
        ),
        (
            sound().entry(word("general.alignment", "32")),
            "general.alignment: expected a whole number",
        ),
        (sound().entry(many.to_vec()), "the key of metadata entry 5"),
        (
            sound().entry(entry("", U32, &[0; 4])),
            "expected 1 to 65535 bytes, found 0",
        ),
        (
            sound().entry(entry("a", 13, &[0; 4])),
            "a: expected a kind of value from 0 to 12, found 13",
        ),
        (
            sound().entry(entry("a", BOOL, &[2])),
            "a: expected true (1) or false (0), found 2",
        ),
        (
            sound().entry(entry("a", TEXT, &many)),
            "truncated or damaged: a ",
        ),
        (
            sound().entry(entry("a", LIST, &list_of(U32, u64::MAX / 2))),
            "truncated or damaged: a ",
        ),
        (
            sound().entry(entry("a", LIST, &list_of(TEXT, 1 << 50))),
            "truncated or damaged: a ",
        ),
        (
            sound().entry(entry("a", LIST, &nested)),
            "a: lists nest more than 4 deep",
        ),
        (
            sound().entry(number("a", 1)).entry(number("a", 1)),
            "a: stands twice",
        ),
        (
            sound().entry(word("general.type", "adapter")),
            "expected \"model\", found \"adapter\"",
        ),
        (sound().entry(number("split.count", 3)), "one of 3 parts"),
        (
            sound().entry(number("llama.attention.head_count_kv", 0)),
            "head_count_kv: expected a whole number from 1",
        ),
        (
            sound().entry(number("llama.attention.value_length", 3)),
            "value_length: expected 2",
        ),
        (
            sound().entry(word("llama.context_length", "many")),
            "context_length: expected a whole number",
        ),
        (
            sound().entry(number("llama.logit_scale", 7)),
            "llama.logit_scale: not known for llama",
        ),
        (
            sound().entry(word("llama.rope.scaling.type", "bent")),
            "\"bent\" is not known",
        ),
        (
            sound().entry(number("llama.rope.dimension_count", 1)),
            "expected 2 as the heads are wide, found 1",
        ),
        (
            sound().tensor(tensor("t", &[], 0, 0)),
            "tensor t: expected 1 to 4 dimensions, found 0",
        ),
        (
            sound().tensor(tensor("t", &[1; 5], 0, 0)),
            "tensor t: expected 1 to 4 dimensions, found 5",
        ),
        (
            sound().tensor(tensor("t", &[0, 4], 0, 128)),
            "tensor t: expected a dimension of at least 1, found 0",
        ),
        (
            sound().tensor(tensor("t", &[1 << 33, 1 << 33], 0, 0)),
            "more elements than can be counted",
        ),
        (
            sound().tensor(tensor("t", &[1 << 62], 0, 0)),
            "more elements than can be counted",
        ),
        (
            sound().tensor(tensor("t", &[4], 99, 0)),
            "tensor t: element type 99 is not known",
        ),
        (
            sound().tensor(tensor("t", &[48], 8, 0)),
            "a multiple of 32 values for q8_0, found 48",
        ),
        (
            sound().tensor(tensor("t", &[4], 0, 8)),
            "tensor t: expected an offset of a multiple of 32, found 8",
        ),
        (
            sound().tensor(tensor("t", &[4], 0, 128)),
            "tensor t: truncated or damaged",
        ),
        (
            sound().tensor(tensor("t", &[4], 0, u64::MAX - 31)),
            "tensor t: truncated or damaged",
        ),
        (sound().tensor(tensor("t", &[4], 0, 32)), "overlap"),
        (
            sound().tensor(tensor("token_embd.weight", &[4], 0, 96)),
            "overlap",
        ),
        (sound().tensor(tensor("\u{0}", &[4], 0, 1)), "offset"),
    ];
    let place = Place::default();
    for (pieces, expected) in cases {
        let error = place.refusal(&pieces.bytes());
        assert!(error.contains(expected), "{error}, expected {expected:?}");
    }
}

#[test]
fn names_that_stand_twice_are_refused() {
    let place = Place::default();
    let mut twice = Pieces::sound().tensor(tensor("output.weight", &[4, 3], 0, 128));
    twice
        .tensors
        .push(tensor("lm_head.weight", &[4, 3], 0, 192));
    twice.data.resize(256, 0);
    // Both mean the head: one by GGUF's name, one as it would be called.
    let error = place.refusal(&twice.bytes());
    assert!(
        error.contains("tensor lm_head.weight: stands twice"),
        "{error}"
    );
}

#[test]
fn other_architectures_and_files_are_refused_by_name() {
    let place = Place::default();
    let mut other = Pieces::sound();
    other.entries[0] = word("general.architecture", "mamba");
    let error = place.refusal(&other.bytes());
    assert!(
        error.contains("\"mamba\" is not known; known: afmoe, ")
            && error.contains("gptneox, granite"),
        "{error}"
    );
    other.entries.remove(0);
    let error = place.refusal(&other.bytes());
    assert!(error.contains("general.architecture: missing"), "{error}");
    for bytes in [&b""[..], b"GG", b"\x80\x02}q", b"GGUF", b"GGUF\x03\0\0\0"] {
        place.refusal(bytes);
    }
}

#[test]
fn rows_that_cannot_be_put_back_in_order_are_refused() {
    let place = Place::default();
    let mut odd = Pieces::sound();
    odd.tensors[1] = tensor("blk.0.attn_q.weight", &[4, 3], 0, 64);
    let error = place.refusal(&odd.bytes());
    assert!(
        error.contains("blk.0.attn_q.weight: expected rows for 2 heads of an even width, found 3"),
        "{error}"
    );
}

#[test]
fn factors_that_are_no_known_scaling_are_refused() {
    let place = Place::default();
    let mut odd = Pieces::sound().tensor(tensor("rope_freqs.weight", &[1], 0, 128));
    odd.data.extend(3.7f32.to_le_bytes());
    // One pair only, which turns once in 2π positions: no band of Llama 3 reaches it from 16 positions on.
    let error = place.refusal(&odd.bytes());
    assert!(
        error.contains("tensor rope_freqs.weight: these factors are not llama3 scaling"),
        "{error}"
    );
    let both = odd.clone().entry(number("llama.rope.scaling.factor", 2));
    let error = place.refusal(&both.bytes());
    assert!(
        error.contains("expected 1 or nothing beside rope_freqs"),
        "{error}"
    );
    let at = odd.data.len() - 4;
    odd.data[at..].copy_from_slice(&f32::NAN.to_le_bytes());
    let error = place.refusal(&odd.bytes());
    assert!(
        error.contains("expected factors above 0, found NaN"),
        "{error}"
    );
}

#[test]
fn blocks_that_cannot_be_read_are_refused_when_they_are_needed() {
    let place = Place::default();
    let mut opaque = Pieces::sound();
    opaque.tensors[0] = tensor("token_embd.weight", &[256, 1], 29, 128);
    opaque.tensors[1] = tensor("output.weight", &[4], 26, 0);
    opaque.data.resize(512, 0);
    let opened =
        attnscope_checkpoint::gguf::open_file(&place.write(&opaque.bytes())).expect("opens");
    let name = "model.embed_tokens.weight";
    assert_eq!(
        opened
            .tensors
            .info(name)
            .expect("a tensor")
            .dtype
            .to_string(),
        "iq1_m"
    );
    assert!(
        opened
            .tensors
            .get(name)
            .expect("a tensor")
            .widen()
            .expect("reads")
            .is_empty()
    );
    let error = opened
        .tensors
        .expect(name, &[1, 256])
        .expect_err("opaque")
        .to_string();
    assert!(
        error.contains(
            "tensor model.embed_tokens.weight: iq1_m blocks cannot be read; readable: q4_0"
        ),
        "{error}"
    );
    let error = opened
        .tensors
        .expect("lm_head.weight", &[4])
        .expect_err("integers")
        .to_string();
    assert!(
        error.contains("expected f32, f16, bf16 or f64, found i32"),
        "{error}"
    );
}

/// Opens what is there; whatever opens must also be what it says.
fn open(path: &Path) -> bool {
    let Ok(opened) = attnscope_checkpoint::gguf::open_file(path) else {
        return false;
    };
    for (name, info) in opened.tensors.iter() {
        assert_eq!(
            info.n_bytes(),
            info.dtype.n_bytes(info.n_elements()),
            "{name}"
        );
        let n_values = if info.dtype.is_float() {
            info.n_elements()
        } else {
            0
        };
        let view = opened.tensors.get(name).expect("a tensor that is listed");
        assert_eq!(view.widen().expect("reads").len(), n_values, "{name}");
    }
    if let Some(vocabulary) = opened.vocabulary {
        // Refused or decoded, as it comes.
        if let Ok(words) = vocabulary.decode() {
            assert_eq!(words.tokens.len(), vocabulary.len());
        }
    }
    // A family may still find something missing; it must not fall over it.
    let _ = Checkpoint::open(path).and_then(attnscope_families::read);
    true
}

/// A file of a few hundred bytes with something of everything, so that most changes hit something.
fn tiny() -> Vec<u8> {
    let texts = |all: &[&str]| {
        let mut list = TEXT.to_le_bytes().to_vec();
        list.extend((all.len() as u64).to_le_bytes());
        all.iter().for_each(|one| list.extend(text(one)));
        list
    };
    let mut tiny = Pieces::sound()
        .entry(number("llama.expert_count", 2))
        .entry(number("llama.expert_used_count", 1))
        .entry(number("llama.rope.dimension_count", 2))
        .entry(word("tokenizer.ggml.model", "llama"))
        .entry(entry(
            "tokenizer.ggml.tokens",
            LIST,
            &texts(&["a", "b", "c"]),
        ))
        .entry(entry("tokenizer.ggml.merges", LIST, &texts(&["a b"])))
        .entry(number("tokenizer.ggml.bos_token_id", 1))
        .tensor(tensor("blk.0.ffn_up_exps.weight", &[32, 2, 2], 8, 128))
        .tensor(tensor("rope_freqs.weight", &[1], 0, 288));
    tiny.data.resize(288, 1);
    tiny.data.extend(1f32.to_le_bytes());
    tiny.bytes()
}

#[test]
fn thousands_of_changed_bytes_are_refused_or_read_correctly() {
    let fixtures = testing::root().join("fixtures/formats/gguf");
    let place = Place::default();
    assert!(open(&place.write(&tiny())), "the tiny file must open");
    let (mut n_read, mut n_refused) = (0, 0);
    // A small generator with a fixed seed: the same changes every time.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let fixture = |name: &str| std::fs::read(fixtures.join(name)).expect("a fixture");
    for (whole, n_changes) in [
        (tiny(), 2500),
        (fixture("llama-q8_0.gguf"), 200),
        (fixture("mixtral-f16.gguf"), 100),
        (fixture("gpt2-q8_0.gguf"), 100),
    ] {
        // Metadata and tensor descriptions end where the weights begin: nowhere behind this.
        let header = whole.len().min(4096) - 8;
        for _ in 0..tries(n_changes / 4, 4) {
            let mut bytes = whole.clone();
            for _ in 0..1 + next(2) {
                let at = next(header);
                match next(16) {
                    0..5 => bytes[at] = next(256) as u8,
                    5..10 => bytes[at] ^= 1 << next(8),
                    10..14 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][next(5)],
                    14 => bytes[at..at + 8].fill([0, 0xff][next(2)]),
                    _ => bytes.truncate(at + next(64)),
                }
                bytes.resize(bytes.len().max(header + 8), 0);
            }
            if open(&place.write(&bytes)) {
                n_read += 1
            } else {
                n_refused += 1
            }
        }
    }
    assert!(
        n_read > tries(75, 4) && n_refused > tries(250, 4),
        "{n_read} read, {n_refused} refused"
    );
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let whole = Pieces::sound().bytes();
    let place = Place::default();
    for n in 0..whole.len() {
        place.refusal(&whole[..n]);
    }
}
