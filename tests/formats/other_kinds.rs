//! Files that attnscope does not read say what they are, and what to do.

use attnscope_checkpoint::Checkpoint;

#[test]
fn files_of_other_kinds_say_what_they_are() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
    for (name, bytes, part) in [
        ("model.safetensors", pointer, "git-lfs pointer"),
        ("program.pt2", "PK", "torch.export"),
        ("part.distcp", "x", "index .metadata"),
        ("graph.onnx", "x", "ONNX"),
        ("flax_model.msgpack", "x", "Flax"),
    ] {
        std::fs::write(at(name), bytes).expect("writes");
        let said = Checkpoint::open(&at(name)).expect_err(name).to_string();
        assert!(said.contains(part) && said.contains(name), "{name}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        std::fs::remove_file(at(name)).expect("removes");
    }
    // TensorFlow's weights: by name, by the first bytes, and by what safetensors say of themselves.
    let header =
        r#"{"__metadata__":{"format":"tf"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    let of_tensorflow = [
        &(header.len() as u64).to_le_bytes()[..],
        header.as_bytes(),
        &[0],
    ]
    .concat();
    for (name, bytes) in [
        ("tf_model.h5", b"x".to_vec()),
        ("tf_model.h5.index.json", b"{}".to_vec()),
        ("weights.bin", b"\x89HDF\r\n\x1a\n".to_vec()),
        ("model.safetensors", of_tensorflow),
    ] {
        std::fs::write(at(name), bytes).expect("writes");
        let said = Checkpoint::open(&at(name)).expect_err(name).to_string();
        assert!(
            said.contains(name) && said.contains("TensorFlow") && said.contains("from_tf=True"),
            "{name}: {said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
        std::fs::remove_file(at(name)).expect("removes");
    }
    for (name, part) in [
        ("tf_model.h5", "TensorFlow"),
        ("__0_0.distcp", "index .metadata"),
        ("_CHECKPOINT_METADATA", "Orbax"),
        ("latest_checkpointed_iteration.txt", "Megatron"),
        ("zero_pp_rank_0_mp_rank_00_optim_states.pt", "DeepSpeed"),
    ] {
        std::fs::write(at(name), "7").expect("writes");
        let said = Checkpoint::open(directory.path())
            .expect_err(name)
            .to_string();
        assert!(said.contains(part), "{name}: {said}");
        std::fs::remove_file(at(name)).expect("removes");
    }
    std::os::unix::fs::symlink("../../blobs/gone", at("model.safetensors")).expect("links");
    for path in [directory.path().to_path_buf(), at("model.safetensors")] {
        let said = Checkpoint::open(&path).expect_err("dangling").to_string();
        assert!(said.contains("symbolic link to ../../blobs/gone"), "{said}");
    }
}
