//! Headers of weights are read before the weights, and alone where no weight is needed.

use std::path::{Path, PathBuf};

use testing::checkpoint_copy::text;

use super::hub_names::{COMMIT, Manner, NAME, run_command, serve_files};

/// A model whose weights are ten times as long as what is read of them for the header.
fn model() -> PathBuf {
    testing::root().join("fixtures/induction")
}

/// Bytes that were downloaded into a cache.
fn n_downloaded(root: &Path) -> u64 {
    let blobs = std::fs::read_dir(root.join("models--some-org--small/blobs"));
    let entries = blobs.into_iter().flatten().flatten();
    let lengths = entries.map(|entry| entry.metadata().expect("a file").len());
    lengths.sum()
}

/// Splits the weights into two shards with an index, and returns the directory.
fn sharded(at: &Path) -> PathBuf {
    let bytes = std::fs::read(model().join("model.safetensors")).expect("reads");
    let all = safetensors::SafeTensors::deserialize(&bytes).expect("tensors");
    let mut tensors = all.tensors();
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    let mut place_of = serde_json::Map::new();
    let n_first = tensors.len() / 2;
    for (idx, part) in [&tensors[..n_first], &tensors[n_first..]]
        .iter()
        .enumerate()
    {
        let file = format!("model-0000{}-of-00002.safetensors", idx + 1);
        let views = part.iter().map(|(name, view)| (name.clone(), view.clone()));
        safetensors::serialize_to_file(views, None, &at.join(&file)).expect("writes");
        for (name, _) in *part {
            place_of.insert(name.clone(), file.clone().into());
        }
    }
    let index = serde_json::json!({ "metadata": {}, "weight_map": place_of }).to_string();
    std::fs::write(at.join("model.safetensors.index.json"), index).expect("writes");
    std::fs::copy(model().join("config.json"), at.join("config.json")).expect("copies");
    at.to_path_buf()
}

#[test]
fn tensors_of_a_hub_model_are_listed_without_its_weights() {
    let shards = tempfile::tempdir().expect("a directory");
    for (manner, directory) in [
        (Manner::Plain, model()),
        (Manner::Redirects, model()),
        (Manner::Cuts, model()),
        (Manner::IgnoresRanges, model()),
        (Manner::Plain, sharded(shards.path())),
    ] {
        let local = run_command("tensors", directory.to_str().expect("a path"), &[], &[]);
        let n_all = std::fs::read_dir(&directory)
            .expect("lists")
            .map(|entry| entry.expect("an entry").metadata().expect("a file").len())
            .sum::<u64>();
        let (endpoint, asked) = serve_files(manner, &directory);
        let home = tempfile::tempdir().expect("a directory");
        let root = home.path().to_str().expect("a path");
        let set = [("HF_HUB_CACHE", root), ("HF_ENDPOINT", endpoint.as_str())];
        for _ in 0..2 {
            let found = run_command("tensors", NAME, &[], &set);
            let said = text(&found.stderr);
            assert!(found.status.success(), "{said}");
            assert_eq!(text(&found.stdout), text(&local.stdout));
            let n = n_downloaded(home.path());
            assert!(n < n_all / 2, "{n} of {n_all} bytes were downloaded");
        }
        // The second time, the header is there.
        let of_weights =
            |request: &&String| request.starts_with("GET") && request.contains(".safetensors HTTP");
        let asked = || -> Vec<String> { asked.lock().expect("a lock").clone() };
        let before = asked().iter().filter(of_weights).count();
        run_command("tensors", NAME, &[], &set);
        assert_eq!(asked().iter().filter(of_weights).count(), before);
        // A run needs the weights, and goes on where the header ends.
        let more = ["--tokens", "1,2,3", "--threads", "1"];
        let found = run_command("report", NAME, &more, &set);
        let said = text(&found.stderr);
        assert!(found.status.success(), "{said}");
        assert!(
            said.contains("tensors of 0.3 million numbers (f32) to download"),
            "{said}"
        );
        assert!(said.contains("of memory"), "{said}");
        let snapshot = home.path().join("models--some-org--small/snapshots");
        for entry in std::fs::read_dir(&directory).expect("lists").flatten() {
            let name = entry.file_name();
            let fetched = snapshot.join(COMMIT).join(&name);
            if name.to_string_lossy().ends_with(".safetensors") {
                let own = std::fs::read(entry.path()).expect("reads");
                assert_eq!(std::fs::read(fetched).expect("reads"), own);
            }
        }
        let last = asked();
        let resumed = |request: &String| of_weights(&request) && request.contains(" from 131072");
        assert_eq!(
            last.iter().any(resumed),
            manner != Manner::IgnoresRanges,
            "{last:?}"
        );
        assert_eq!(
            text(&run_command("tensors", NAME, &[], &set).stdout),
            text(&local.stdout)
        );
    }
}

#[test]
fn a_header_that_does_not_fit_its_file_is_refused_before_the_weights_are_downloaded() {
    for (manner, part) in [
        (Manner::LongHeader, "the header claims 1099511627776 bytes"),
        (
            Manner::CutHeader,
            "the download stopped after 100 of 131072 bytes",
        ),
        (
            Manner::Short,
            "its header describes 1237112 bytes, the hub has 1237096",
        ),
        (Manner::NoWeights, "has no such file on the hub"),
    ] {
        let (endpoint, _) = serve_files(manner, &model());
        let home = tempfile::tempdir().expect("a directory");
        let root = home.path().to_str().expect("a path");
        let set = [("HF_HUB_CACHE", root), ("HF_ENDPOINT", endpoint.as_str())];
        for command in ["tensors", "report"] {
            let more: &[&str] = match command {
                "report" => &["--tokens", "1,2,3"],
                _ => &[],
            };
            let found = run_command(command, NAME, more, &set);
            let said = text(&found.stderr);
            assert_eq!(found.status.code(), Some(2), "{said}");
            assert!(said.contains(part) && said.contains(NAME), "{part}: {said}");
            assert!(found.stdout.is_empty());
            let n = n_downloaded(home.path());
            assert!(n < 200_000, "{n} bytes were downloaded");
        }
    }
}

#[test]
fn weights_without_a_header_are_not_downloaded_to_be_listed_and_a_plan_asks_for_nothing() {
    let old = tempfile::tempdir().expect("a directory");
    std::fs::copy(model().join("config.json"), old.path().join("config.json")).expect("copies");
    let (endpoint, asked) = serve_files(Manner::Plain, old.path());
    let home = tempfile::tempdir().expect("a directory");
    let root = home.path().to_str().expect("a path");
    let set = [("HF_HUB_CACHE", root), ("HF_ENDPOINT", endpoint.as_str())];
    let found = run_command("tensors", NAME, &[], &set);
    let said = text(&found.stderr);
    assert_eq!(found.status.code(), Some(2), "{said}");
    assert!(said.contains("only safetensors have one"), "{said}");
    let requests = asked.lock().expect("a lock").clone();
    let of_weights = |request: &String| request.contains("pytorch_model.bin");
    assert!(!requests.iter().any(of_weights), "{requests:?}");
    let plan = home.path().join("plan");
    let output = plan.to_str().expect("a path");
    let more = ["the king", "--output", output, "--plan"];
    let found = run_command("batch", NAME, &more, &set);
    assert!(found.status.success(), "{}", text(&found.stderr));
    assert_eq!(asked.lock().expect("a lock").len(), requests.len());
}
