//! PyTorch files that ask for more than tensors, or lie about their bytes: refused by name, and nothing is run.

use std::path::Path;

use attnscope_checkpoint::Checkpoint;
use testing::pickle_parts::*;

fn assert_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in {said:?}");
    }
}

fn first_values(bytes: &[u8]) -> Vec<f32> {
    let found = open(bytes).expect("opens");
    found
        .tensors
        .get("w")
        .expect("a tensor")
        .widen()
        .expect("reads")
        .into_owned()
}

#[test]
fn what_is_put_together_here_opens_when_nothing_is_wrong() {
    for end in [End::Classic, End::Zip64] {
        let mut entries = entries(&healthy());
        assert_eq!(first_values(&archive(&entries, end)), [1.0, 2.0, 3.0]);
        entries.iter_mut().for_each(|entry| entry.is_zip64 = true);
        assert_eq!(first_values(&archive(&entries, end)), [1.0, 2.0, 3.0]);
    }
}

#[test]
fn calls_of_anything_are_refused_by_name() {
    let cases: &[(&[u8], &[&str])] = &[
        (
            b"\x80\x02cos\nsystem\nX\x04\0\0\0true\x85R.",
            &["GLOBAL", "os.system", "byte 2"],
        ),
        (
            b"\x80\x02cposix\nsystem\nX\x04\0\0\0true\x85R.",
            &["posix.system"],
        ),
        (
            b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.",
            &["STACK_GLOBAL", "builtins.eval"],
        ),
        (
            b"\x80\x02c__builtin__\ngetattr\n.",
            &["__builtin__.getattr"],
        ),
        (b"(S'true'\nios\nsystem\n.", &["INST", "os.system"]),
        (b"(cos\nsystem\no.", &["os.system"]),
        (b"((lo.", &["OBJ"]),
        (b"\x80\x02}}b.", &["BUILD", "dictionary"]),
        (b"\x80\x02]}b.", &["BUILD", "a list"]),
        (
            b"\x80\x02c__main__\nGPT\n)\x81}b.",
            &["__main__.GPT", "no code of a pickle is run"],
        ),
        (b"\x80\x02cbuiltins\ndict\n)\x81.", &["NEWOBJ", "dict"]),
        (b"\x80\x04cbuiltins\ndict\n)}\x92.", &["NEWOBJ_EX"]),
        (b"\x80\x02\x82\x01.", &["EXT1"]),
        (b"\x80\x02\x83\x01\0.", &["EXT2"]),
        (b"\x80\x02\x84\x01\0\0\0.", &["EXT4"]),
        (b"P12\n.", &["PERSID"]),
        (b"\x80\x05\x97.", &["NEXT_BUFFER"]),
        (b"\x80\x02X\x01\0\0\0a)R.", &["REDUCE", "a text"]),
        (
            b"\x80\x02ccollections\nOrderedDict\nK\x01R.",
            &["REDUCE", "an integer"],
        ),
        (
            b"\x80\x02ccollections\ndefaultdict\n.",
            &["collections.defaultdict"],
        ),
        (
            b"\x80\x02cnumpy.core.multiarray\nscalar\n.",
            &["numpy.core.multiarray.scalar"],
        ),
        (
            b"\x80\x02ctorch._utils\n_rebuild_sparse_tensor\n.",
            &["_rebuild_sparse_tensor", "sparse"],
        ),
        (
            b"\x80\x02ctorch._utils\n_rebuild_qtensor\n.",
            &["_rebuild_qtensor", "quantised"],
        ),
        (
            b"\x80\x02ctorch\nQInt8Storage\n.",
            &["QInt8Storage", "quantised"],
        ),
        (
            b"\x80\x02ctorch._utils\n_rebuild_device_tensor_from_numpy\n.",
            &["_rebuild_device_tensor_from_numpy"],
        ),
        (b"\x80\x06N.", &["protocol", "6"]),
        (b"\xff.", &["0xff"]),
    ];
    for (pickle, parts) in cases {
        assert_says(&refused_pickle(pickle), parts);
        // The same inside plain data, which may hold even less.
        let plain = attnscope_checkpoint::pytorch::plain_pickle(pickle, Path::new("meta.pkl"));
        assert!(plain.is_err(), "{parts:?}");
    }
}

#[test]
fn plain_data_holds_no_tensors() {
    let said = attnscope_checkpoint::pytorch::plain_pickle(&healthy(), Path::new("meta.pkl"))
        .expect_err("refused");
    assert_says(
        &said.to_string(),
        &["meta.pkl", "torch._utils._rebuild_tensor_v2", "plain"],
    );
}

#[test]
fn lengths_beyond_the_file_are_refused() {
    let cases: &[(&[u8], &str)] = &[
        (b"\x8b\xff\xff\xff\x7f.", "LONG4"),
        (b"\x8a\xff.", "LONG1"),
        (b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.", "BINUNICODE8"),
        (b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", "BINUNICODE8"),
        (b"\x8e\0\0\0\0\0\x01\0\0.", "BINBYTES8"),
        (b"\x96\0\0\0\0\0\x01\0\0.", "BYTEARRAY8"),
        (b"X\xff\xff\xff\xff.", "BINUNICODE"),
        (b"\x95\xff\xff\xff\xff\xff\xff\xff\xff.", "FRAME"),
        (b"cos", "GLOBAL"),
        (b"}", "STOP"),
        (b"", "STOP"),
        (b".", "STOP"),
        (b"X", "BINUNICODE"),
        (b"I12", "INT"),
        (b"I99999999999999999999\n.", "INT"),
        (b"(K\x01.", "STACK"),
        (b"t.", "TUPLE"),
        (b"K\x01\x87.", "TUPLE3"),
        (b"}(K\x01u.", "SETITEMS"),
        (b"h\x05.", "memo"),
        (b"Va\\u12\n.", "UNICODE"),
        (b"S'a\n.", "STRING"),
        (b"X\x01\0\0\0\xff.", "UTF-8"),
    ];
    for (pickle, part) in cases {
        if *part != "STACK" {
            assert_says(&refused_pickle(pickle), &[part]);
        } else {
            refused_pickle(pickle);
        }
    }
}

#[test]
fn nesting_and_sharing_beyond_reason_are_refused() {
    // Lists in lists, opened at once and built from inside.
    let marks = [b"(".repeat(100_000), b".".to_vec()].concat();
    assert_says(&refused_pickle(&marks), &["inside each other"]);
    let lists = [b"]".repeat(100_000), b"a".repeat(99_999), b".".to_vec()].concat();
    let said = attnscope_checkpoint::pytorch::plain_pickle(&lists, Path::new("meta.pkl"))
        .expect_err("refused");
    assert_says(&said.to_string(), &["inside each other"]);
    // Each list holds the one before twice: 2^60 items when written out.
    let mut bomb = b"]q\0".to_vec();
    for level in 1..60u8 {
        bomb.extend([
            b']',
            b'q',
            level,
            b'(',
            b'h',
            level - 1,
            b'h',
            level - 1,
            b'e',
        ]);
    }
    bomb.push(b'.');
    let said = attnscope_checkpoint::pytorch::plain_pickle(&bomb, Path::new("meta.pkl"))
        .expect_err("refused");
    assert_says(&said.to_string(), &["refer to each other"]);
    // A large text that is held often.
    let text = [b"X\0\0\x10\0", &b"a".repeat(1 << 20)[..], b"q\0"].concat();
    let often = [b"](", &text[..], &b"h\0".repeat(10_000), b"e."].concat();
    let said = attnscope_checkpoint::pytorch::plain_pickle(&often, Path::new("meta.pkl"))
        .expect_err("refused");
    assert_says(&said.to_string(), &["refer to each other"]);
    // Keys inside keys: their escapes double at every level.
    let mut keys = b"X\x01\0\0\0\"".to_vec();
    for _ in 0..30 {
        keys = [b"}", &keys[..], b"Ns\x85"].concat();
    }
    let keys = [b"}", &keys[..], b"Ns."].concat();
    assert!(attnscope_checkpoint::pytorch::plain_pickle(&keys, Path::new("meta.pkl")).is_err());
    // A list that holds itself.
    let circle = b"]q\0h\0a.";
    assert!(attnscope_checkpoint::pytorch::plain_pickle(circle, Path::new("meta.pkl")).is_err());
    // A name behind more wrappers than anyone has.
    let name = "module.".repeat(100_000);
    let mut wrapped = healthy();
    wrapped.splice(4..8, (name.len() as u32 + 1).to_le_bytes());
    wrapped.splice(8..8, name.bytes());
    let found = open(&archive(&entries(&wrapped), End::Classic)).expect("opens");
    assert_eq!(found.tensors.len(), 1);
    // More values than a stack may hold.
    let stack = [b"N".repeat((1 << 20) + 1), b".".to_vec()].concat();
    assert_says(&refused_pickle(&stack), &["on the stack"]);
}

#[test]
fn tensors_beyond_their_storage_are_refused() {
    let cases: &[(Vec<u8>, &[&str])] = &[
        (
            tensor("FloatStorage", 4, 0, &[3], &[1]),
            &["tensor w", "claims 4 elements", "12 bytes"],
        ),
        (
            tensor("DoubleStorage", 3, 0, &[3], &[1]),
            &["tensor w", "claims 3 elements of 8 bytes"],
        ),
        (
            tensor("FloatStorage", 3, 1, &[3], &[1]),
            &["tensor w", "reaches beyond"],
        ),
        (
            tensor("FloatStorage", 3, 0, &[2], &[3]),
            &["tensor w", "reaches beyond"],
        ),
        (
            tensor("FloatStorage", 3, 0, &[1 << 40], &[0]),
            &["tensor w", "storage holds 3"],
        ),
        (
            tensor("FloatStorage", 3, 0, &[1 << 40, 1 << 40], &[0, 0]),
            &["too large"],
        ),
        (
            tensor("FloatStorage", 3, 0, &[1 << 40, 1 << 40, 0], &[0, 0, 0]),
            &["too large"],
        ),
        (
            tensor("FloatStorage", 3, 0, &[2], &[i64::MAX]),
            &["reaches beyond"],
        ),
        (tensor("FloatStorage", 3, 0, &[-1], &[1]), &["shape", "-1"]),
        (tensor("FloatStorage", 3, -1, &[1], &[1]), &["offset", "-1"]),
        (
            tensor("FloatStorage", 3, 0, &[1], &[1, 1]),
            &["do not belong together"],
        ),
        (tensor("FloatStorage", i64::MAX, 0, &[3], &[1]), &["claims"]),
        (
            tensor("FloatStorage", 3, 0, &[1; 17], &[1; 17]),
            &["16 dimensions"],
        ),
        (
            tensor("float32", 3, 0, &[1], &[1]),
            &["torch.float32", "element type"],
        ),
    ];
    for (tensor, parts) in cases {
        assert_says(&refused_pickle(&state_dict(tensor)), parts);
    }
    assert_says(&refused_pickle(b"}."), &["no tensors", "state_dict"]);
    assert_says(&refused_pickle(b"]."), &["expected a state dict", "a list"]);
    let mut without = entries(&healthy());
    without.pop();
    assert_says(
        &refused(&archive(&without, End::Classic)),
        &["tensor w", "archive/data/0"],
    );
}

#[test]
fn a_part_of_a_storage_begins_where_it_says() {
    let of = |offset, n| {
        let pickle = state_dict(&tensor_of_a_part(offset, n));
        archive(&entries(&pickle), End::Classic)
    };
    assert_eq!(first_values(&of(1, 2)), [2.0, 3.0]);
    assert_says(&refused(&of(2, 2)), &["its part of 2 elements at 2"]);
    assert_says(&refused(&of(i64::MAX, 2)), &["its part"]);
    assert_says(&refused(&of(1, 1)), &["storage holds 1"]);
}

#[test]
fn archives_that_lie_are_refused() {
    let whole = entries(&healthy());
    let change = |change: &dyn Fn(&mut Vec<Entry>)| {
        let mut entries = whole.clone();
        change(&mut entries);
        refused(&archive(&entries, End::Classic))
    };
    let said = change(&|e| e[2].offset = Some(1 << 30));
    assert_says(&said, &["archive/data/0", "outside"]);
    // Two entries over the same bytes.
    let said = change(&|e| {
        let again = Entry {
            offset: Some(0),
            ..e[0].clone()
        };
        e.push(Entry {
            name: "archive/data.pkl".to_owned(),
            ..again
        });
    });
    assert_says(&said, &["archive/data.pkl", "twice"]);
    let inner = archive(&[Entry::stored("data/0", &[0; 12])], End::Classic);
    let said = change(&|e| {
        // The content of an entry is an archive, whose entry is listed as one of this.
        let at = 30 + "archive/data.pkl".len() + 4 + e[0].data.len();
        let at = at + 30 + "archive/byteorder".len() + 4 + 6 + 30 + "archive/data/1".len() + 4;
        e[2] = Entry::stored("data/1", &inner);
        e.push(Entry {
            offset: Some(at as u32),
            ..Entry::stored("data/0", &[0; 12])
        });
    });
    assert_says(&said, &["overlap", "archive/data/0", "archive/data/1"]);
    let said = change(&|e| e[0].offset = Some(3));
    assert_says(&said, &["archive/data.pkl", "no local header"]);
    // A bomb is never inflated: neither the pickle nor a storage.
    for (idx, name) in [(0, "archive/data.pkl"), (2, "archive/data/0")] {
        let said = change(&|e| {
            e[idx].method = 8;
            e[idx].claimed = u32::MAX - 1;
        });
        assert_says(&said, &[name, "compressed (deflate)", "expected it stored"]);
        let said = change(&|e| e[idx].claimed = u32::MAX - 1);
        assert_says(&said, &[name, "claims 4294967294 bytes"]);
        assert_says(&change(&|e| e[idx].flags = 1), &[name, "encrypted"]);
        assert_says(&change(&|e| e[idx].method = 99), &[name, "method 99"]);
    }
    assert_says(
        &change(&|e| e[1].data = b"big".to_vec()),
        &["archive/byteorder"],
    );
    let said = change(&|e| e[1] = Entry::stored("byteorder", b"big"));
    assert_says(&said, &["byteorder", "expected little", "big"]);
    assert_says(&change(&|e| drop(e.remove(0))), &["without data.pkl"]);
    let said = change(&|e| e.push(Entry::stored("other/data.pkl", b"N.")));
    assert_says(&said, &["more than one data.pkl"]);
}

#[test]
fn a_directory_of_an_archive_that_is_cut_or_moved_is_refused() {
    for end in [End::Classic, End::Zip64] {
        let whole = archive(&entries(&healthy()), end);
        for n in [2, 10, whole.len() / 2, whole.len() - 30, whole.len() - 1] {
            assert_says(&refused(&whole[..n]), &["truncated"]);
        }
        // The number of entries, and the size and place of the directory.
        let (first, n) = match end {
            End::Classic => (whole.len() - 12, 10),
            End::Zip64 => (whole.len() - 22 - 20 - 24, 24),
        };
        for at in first..first + n {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x41;
            refused(&damaged);
        }
    }
}

#[test]
fn what_is_no_pytorch_file_is_refused() {
    for bytes in [
        &b""[..],
        b"\x80\x02",
        b"hello",
        b"\x80\x02K\x01.",
        b"GGUF\0\0\0\0",
        &[0; 100],
    ] {
        assert_says(&refused(bytes), &["not a PyTorch file"]);
    }
}

#[test]
fn legacy_files_that_lie_are_refused() {
    let path = testing::root().join("fixtures/formats/pytorch/legacy.pt");
    let whole = std::fs::read(path).expect("reads");
    assert!(open(&whole).is_ok());
    let find = |part: &[u8]| {
        let mut windows = whole.windows(part.len());
        windows.position(|window| window == part).expect("a part")
    };
    let mut damaged = whole.clone();
    damaged[find(b"little_endian") + b"little_endian".len() + 2] = 0x89;
    assert_says(&refused(&damaged), &["big-endian"]);
    let mut damaged = whole.clone();
    damaged[17..20].copy_from_slice(b"M\xea\x03");
    assert_says(&refused(&damaged), &["protocol 1001", "1002"]);
    assert_says(
        &refused(&whole[..whole.len() - 1]),
        &["truncated", "storage"],
    );
    assert_says(&refused(&[&whole[..], b"x"].concat()), &["lengthened"]);
    let mut damaged = whole.clone();
    let at = find(b"BoolStorage");
    damaged[at..at + 4].copy_from_slice(b"Evil");
    assert_says(&refused(&damaged), &["torch.EvilStorage"]);
}

#[test]
fn tensors_of_torchao_that_cannot_be_read_are_refused_by_their_class() {
    let fixtures = testing::root().join("fixtures/formats/packed");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("weights.bin");
    for (name, from, to, parts) in [
        (
            "torchao_bin_int8",
            &b"torchao.quantization\nInt8Tensor"[..],
            &b"torchao.quantization\nInt4Tensor"[..],
            ["Int4Tensor", "readable: Int8Tensor"],
        ),
        (
            "torchao_bin_int8",
            b"torchao.quantization\nInt8Tensor",
            b"another.quantization\nInt8Tensor",
            ["another.quantization.Int8Tensor", "cannot be read"],
        ),
        (
            "torchao_affine_int8",
            b"PlainAQTTensorImpl",
            b"OtherAQTTensorImpl",
            ["OtherAQTTensorImpl", "plain layout"],
        ),
        (
            "torchao_affine_int8",
            b"ZeroPointDomain\nqMK\x01",
            b"ZeroPointDomain\nqMK\x02",
            ["zero points", "whole numbers"],
        ),
        (
            "torchao_affine_int8",
            b"int_data",
            b"int_more",
            ["self_attn.q_proj.weight", "has no int_data"],
        ),
    ] {
        let whole = std::fs::read(fixtures.join(name).join("pytorch_model.bin")).expect("reads");
        let at = whole.windows(from.len()).position(|part| part == from);
        let at = at.unwrap_or_else(|| panic!("{name}: no {}", from.escape_ascii()));
        let mut bytes = whole.clone();
        bytes[at..at + to.len()].copy_from_slice(to);
        std::fs::write(&file, &bytes).expect("writes");
        let said = Checkpoint::open(&file).expect_err(name).to_string();
        assert!(
            parts.iter().all(|part| said.contains(part)),
            "{name}: {said}"
        );
    }
}
