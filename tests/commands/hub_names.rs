//! Names of the hub: found in a cache that is laid out as the hub's tools do it, and fetched from a server that speaks their protocol.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use testing::checkpoint_copy::text;

pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
pub const NAME: &str = "some-org/small";

fn model() -> PathBuf {
    testing::root().join("fixtures/formats/adapters/llama_base")
}

fn blob_of(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A cache that holds the model, its files as links to blobs.
fn cache(at: &Path) {
    let repository = at.join("models--some-org--small");
    let snapshot = repository.join("snapshots").join(COMMIT);
    for directory in [
        snapshot.clone(),
        repository.join("blobs"),
        repository.join("refs"),
    ] {
        std::fs::create_dir_all(directory).expect("makes");
    }
    std::fs::write(repository.join("refs/main"), COMMIT).expect("writes");
    for file in ["config.json", "model.safetensors"] {
        let bytes = std::fs::read(model().join(file)).expect("reads");
        let blob = blob_of(&bytes);
        std::fs::write(repository.join("blobs").join(&blob), bytes).expect("writes");
        std::os::unix::fs::symlink(format!("../../blobs/{blob}"), snapshot.join(file))
            .expect("links");
    }
}

fn run(target: &str, set: &[(&str, &str)]) -> Output {
    let more = ["--tokens", "1,2,3", "--format", "json", "--threads", "1"];
    run_command("report", target, &more, set)
}

/// Runs a command on a target, with no other settings of the hub than `set`.
pub fn run_command(
    command_name: &str,
    target: &str,
    more: &[&str],
    set: &[(&str, &str)],
) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_attnscope"));
    for name in [
        "HF_HUB_CACHE",
        "HUGGINGFACE_HUB_CACHE",
        "HF_HOME",
        "HF_ENDPOINT",
        "HF_TOKEN",
        "HF_HUB_OFFLINE",
        "XDG_CACHE_HOME",
    ] {
        command.env_remove(name);
    }
    command.envs(set.iter().copied()).env("NO_PROXY", "*");
    command.args([command_name, target]).args(more);
    command.output().expect("runs")
}

fn name_of(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    report["model"]["name"].as_str().expect("a name").to_owned()
}

#[test]
fn a_model_in_the_cache_opens_by_every_name_it_has() {
    let home = tempfile::tempdir().expect("a directory");
    let root = home.path().join("hub");
    cache(&root);
    let at = home.path().to_str().expect("a path");
    let root = root.to_str().expect("a path");
    let snapshot = format!("{root}/models--some-org--small/snapshots/{COMMIT}");
    let blob = std::fs::canonicalize(format!("{snapshot}/model.safetensors")).expect("a blob");
    for (target, set) in [
        (NAME, ("HF_HUB_CACHE", root)),
        (NAME, ("HF_HOME", at)),
        ("some-org/small@main", ("HUGGINGFACE_HUB_CACHE", root)),
        ("hf://some-org/small", ("HF_HUB_CACHE", root)),
        (
            "https://huggingface.co/some-org/small/tree/main",
            ("HF_HUB_CACHE", root),
        ),
        (&format!("{NAME}@{COMMIT}"), ("HF_HUB_CACHE", root)),
        (
            &format!("{root}/models--some-org--small"),
            ("HF_HUB_CACHE", "/nowhere"),
        ),
        (&snapshot, ("HF_HUB_CACHE", "/nowhere")),
        (&format!("file://{snapshot}"), ("HF_HUB_CACHE", "/nowhere")),
        (blob.to_str().expect("a path"), ("HF_HUB_CACHE", "/nowhere")),
    ] {
        let found = run(target, &[set, ("HF_HUB_OFFLINE", "1")]);
        assert_eq!(name_of(&found), NAME, "{target}");
    }
    for (target, part) in [
        ("some-org/other", "no model of this name is in the cache"),
        ("some-org/small@v2", "no model of this name is in the cache"),
        ("hf://datasets/some-org/small", "expected a model"),
        (
            root,
            "is a cache of 1 model; name one of them: some-org/small",
        ),
    ] {
        let found = run(target, &[("HF_HUB_CACHE", root), ("HF_HUB_OFFLINE", "1")]);
        let said = text(&found.stderr);
        assert_eq!(found.status.code(), Some(2), "{target}: {said}");
        assert!(said.contains(part), "{target}: {said}");
    }
    std::fs::remove_file(blob).expect("removes");
    let said = text(&run(NAME, &[("HF_HUB_CACHE", root), ("HF_HUB_OFFLINE", "1")]).stderr);
    assert!(
        said.contains("is a symbolic link") && said.contains("missing"),
        "{said}"
    );
}

/// How a server behaves.
#[derive(Clone, Copy, PartialEq)]
pub enum Manner {
    Plain,
    /// Bytes come in pieces, with waits between.
    Slow,
    /// The first answer of each file ends in the middle.
    Cuts,
    /// Files lie at another place of the same server.
    Redirects,
    Refuses(u16, &'static str),
    /// Bytes that are not those of the blob's name.
    Lies,
    /// The body of each file stops in the middle, and the connection stays open.
    Stalls,
    /// A file that does not end, whose length is not said.
    Endless,
    /// A file that is said to be longer than any configuration.
    Huge,
    /// Every answer is the whole file, whatever part was asked for.
    IgnoresRanges,
    /// Weights whose header is said to be longer than the file.
    LongHeader,
    /// Weights that end within their header.
    CutHeader,
    /// Weights that are said to be shorter than their header describes.
    Short,
    /// Weights that are listed and not there.
    NoWeights,
}

/// A server of the small model, and the requests that it got.
fn serve(manner: Manner) -> (String, Arc<Mutex<Vec<String>>>) {
    serve_files(manner, &model())
}

/// A server of the files of a directory, and the requests that it got.
pub fn serve_files(manner: Manner, directory: &Path) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (asked, directory) = (Arc::clone(&seen), directory.to_path_buf());
    thread::spawn(move || {
        let cut = Arc::new(Mutex::new(BTreeMap::new()));
        for stream in listener.incoming().flatten() {
            let (asked, cut) = (Arc::clone(&asked), Arc::clone(&cut));
            let directory = directory.clone();
            thread::spawn(move || answer(&stream, (manner, &directory), &asked, &cut));
        }
    });
    (endpoint, seen)
}

fn answer(
    mut stream: &TcpStream,
    (manner, directory): (Manner, &Path),
    asked: &Mutex<Vec<String>>,
    cut: &Mutex<BTreeMap<String, bool>>,
) {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().and_then(Result::ok).unwrap_or_default();
    let headers: Vec<String> = lines
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .collect();
    let header = |name: &str| {
        headers.iter().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then(|| value.to_owned())
        })
    };
    let range = header("range").filter(|_| manner != Manner::IgnoresRanges);
    let range = range.as_deref().and_then(|range| {
        let (from, to) = range.trim_start_matches("bytes=").split_once('-')?;
        let to = to.parse().map_or(usize::MAX, |last: usize| last + 1);
        Some((from.parse::<usize>().ok()?, to))
    });
    let (from, to) = range.unwrap_or((0, usize::MAX));
    let token = header("authorization").unwrap_or_default();
    asked.lock().expect("a lock").push(match to {
        usize::MAX => format!("{first} from {from} {token}"),
        to => format!("{first} from {from} to {to} {token}"),
    });
    let mut words = first.split(' ');
    let (method, path) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let mut say = |status: &str, headers: &str, body: &[u8], n: usize| {
        let head = format!(
            "HTTP/1.1 {status}\r\nconnection: close\r\n{headers}content-length: {n}\r\n\r\n"
        );
        let mut all = stream.write_all(head.as_bytes());
        if method != "HEAD" {
            let is_cut = manner == Manner::Stalls && !path.starts_with("/api/");
            let n_sent = if is_cut { body.len() / 2 } else { body.len() };
            for part in body[..n_sent].chunks(4096) {
                all = all.and_then(|()| stream.write_all(part));
                if manner == Manner::Slow {
                    thread::sleep(Duration::from_millis(5));
                }
            }
        }
        if method == "GET" && manner == Manner::Stalls && !path.starts_with("/api/") {
            thread::sleep(Duration::from_secs(120));
        }
        drop(all);
    };
    if let Manner::Refuses(status, word) = manner {
        return say(
            &format!("{status} No"),
            &format!("x-error-code: {word}\r\n"),
            b"",
            0,
        );
    }
    if path == "/api/models/some-org/small/revision/main" {
        let own = std::fs::read_dir(directory).expect("lists").flatten();
        let own = own.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let others = ["README.md", "pytorch_model.bin", "../../escape.json"].map(str::to_owned);
        let files: Vec<String> = own.chain(others).collect();
        let siblings: Vec<_> = files
            .iter()
            .map(|file| serde_json::json!({ "rfilename": file }))
            .collect();
        let body = serde_json::json!({ "sha": COMMIT, "siblings": siblings }).to_string();
        return say("200 OK", "", body.as_bytes(), body.len());
    }
    let file = path.rsplit('/').next().unwrap_or_default();
    let is_weights = file.ends_with(".safetensors");
    let read = std::fs::read(directory.join(file));
    let (Ok(mut bytes), false) = (read, is_weights && manner == Manner::NoWeights) else {
        return say("404 Not Found", "x-error-code: EntryNotFound\r\n", b"", 0);
    };
    if is_weights && manner == Manner::LongHeader {
        bytes[..8].copy_from_slice(&(1u64 << 40).to_le_bytes());
    }
    let n_said = match manner {
        Manner::Short if is_weights => bytes.len() - 16,
        _ => bytes.len(),
    };
    if is_weights && manner == Manner::CutHeader {
        bytes.truncate(100);
    }
    let etag = blob_of(if manner == Manner::Lies {
        b"other"
    } else {
        &bytes
    });
    let about = format!(
        "x-repo-commit: {COMMIT}\r\nx-linked-etag: \"{etag}\"\r\nx-linked-size: {n_said}\r\n"
    );
    if manner == Manner::Redirects && !path.starts_with("/elsewhere/") {
        let headers = format!(
            "{about}location: http://{}/elsewhere/{file}\r\n",
            header("host").unwrap_or_default()
        );
        return say("302 Found", &headers, b"", 0);
    }
    if matches!(manner, Manner::Endless | Manner::Huge) {
        let size = match manner {
            Manner::Huge => format!("x-linked-size: {}\r\n", 3u64 << 30),
            _ => String::new(),
        };
        let head =
            format!("HTTP/1.1 200 OK\r\nconnection: close\r\nx-linked-etag: \"abc\"\r\n{size}\r\n");
        let mut all = stream.write_all(head.as_bytes());
        while method == "GET" && all.is_ok() {
            all = stream.write_all(&[b' '; 1 << 16]);
        }
        return;
    }
    let to = to.min(bytes.len());
    let rest = &bytes[from.min(to)..to];
    let status = if range.is_some() {
        "206 Partial Content"
    } else {
        "200 OK"
    };
    let is_first = method == "GET"
        && cut
            .lock()
            .expect("a lock")
            .insert(file.to_owned(), true)
            .is_none();
    let sent = if manner == Manner::Cuts && is_first {
        &rest[..rest.len() / 2]
    } else {
        rest
    };
    say(status, &about, sent, rest.len());
}

#[test]
fn a_model_is_fetched_once_whatever_the_server_does_to_its_bytes() {
    for manner in [Manner::Plain, Manner::Slow, Manner::Cuts, Manner::Redirects] {
        let (endpoint, asked) = serve(manner);
        let home = tempfile::tempdir().expect("a directory");
        let root = home.path().to_str().expect("a path");
        let set = [
            ("HF_HUB_CACHE", root),
            ("HF_ENDPOINT", endpoint.as_str()),
            ("HF_TOKEN", "hf_secret"),
        ];
        assert_eq!(name_of(&run(NAME, &set)), NAME);
        let snapshot = home
            .path()
            .join("models--some-org--small/snapshots")
            .join(COMMIT);
        for file in ["config.json", "model.safetensors"] {
            let link = snapshot.join(file);
            assert!(link.symlink_metadata().expect("a link").is_symlink());
            assert_eq!(
                std::fs::read(&link).expect("reads"),
                std::fs::read(model().join(file)).expect("reads")
            );
        }
        assert!(
            !snapshot.join("pytorch_model.bin").exists()
                && !home.path().join("escape.json").exists()
        );
        let requests = asked.lock().expect("a lock").clone();
        assert!(
            requests
                .iter()
                .all(|request| request.contains("Bearer hf_secret")),
            "{requests:?}"
        );
        let resumed = requests
            .iter()
            .any(|request| request.starts_with("GET") && !request.contains("from 0"));
        assert_eq!(resumed, manner == Manner::Cuts, "{requests:?}");
        // What is in the cache is not asked for again.
        assert_eq!(name_of(&run(NAME, &set)), NAME);
        assert_eq!(asked.lock().expect("a lock").len(), requests.len());
    }
}

#[test]
fn a_server_that_stalls_or_never_ends_is_given_up() {
    for (manner, part) in [
        (Manner::Stalls, "nothing came for 1 s"),
        (Manner::Endless, "expected at most 16777216 bytes, found"),
        (
            Manner::Huge,
            "expected at most 16777216 bytes, found 3221225472",
        ),
    ] {
        let (endpoint, _) = serve(manner);
        let home = tempfile::tempdir().expect("a directory");
        let root = home.path().to_str().expect("a path");
        let set = [
            ("HF_HUB_CACHE", root),
            ("HF_ENDPOINT", endpoint.as_str()),
            ("HF_HUB_DOWNLOAD_TIMEOUT", "1"),
        ];
        let began = std::time::Instant::now();
        let found = run(NAME, &set);
        let said = text(&found.stderr);
        assert_eq!(found.status.code(), Some(2), "{said}");
        assert!(said.contains(part), "{said}");
        assert!(began.elapsed() < Duration::from_secs(60), "{said}");
        let blobs = home.path().join("models--some-org--small/blobs");
        for entry in std::fs::read_dir(blobs).expect("lists") {
            let n = entry.expect("an entry").metadata().expect("a file").len();
            assert!(n < 1 << 20, "{n} bytes were left behind");
        }
    }
}

#[test]
fn a_token_is_not_read_from_a_pipe() {
    let (endpoint, asked) = serve(Manner::Plain);
    let home = tempfile::tempdir().expect("a directory");
    let pipe = home.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo runs").success());
    for path in [pipe.to_str().expect("a path"), "/dev/zero"] {
        let cache = tempfile::tempdir().expect("a directory");
        let root = cache.path().to_str().expect("a path");
        let set = [
            ("HF_HUB_CACHE", root),
            ("HF_ENDPOINT", endpoint.as_str()),
            ("HF_TOKEN_PATH", path),
        ];
        assert_eq!(name_of(&run(NAME, &set)), NAME);
    }
    let asked = asked.lock().expect("a lock");
    assert!(asked.iter().all(|request| !request.contains("Bearer")));
}

#[test]
fn a_refusal_says_what_to_do_and_leaves_nothing_that_opens() {
    for (manner, part) in [
        (
            Manner::Refuses(401, "RepoNotFound"),
            "no model of this name on the hub, or it is private",
        ),
        (
            Manner::Refuses(404, "RepoNotFound"),
            "no model of this name on the hub",
        ),
        (
            Manner::Refuses(404, "RevisionNotFound"),
            "has no revision main",
        ),
        (Manner::Refuses(403, "GatedRepo"), "is gated"),
        (Manner::Refuses(503, ""), "status 503"),
        (Manner::Lies, "does not match the hub's checksum"),
    ] {
        let (endpoint, _) = serve(manner);
        let home = tempfile::tempdir().expect("a directory");
        let root = home.path().to_str().expect("a path");
        let found = run(NAME, &[("HF_HUB_CACHE", root), ("HF_ENDPOINT", &endpoint)]);
        let said = text(&found.stderr);
        assert_eq!(found.status.code(), Some(2), "{said}");
        assert!(said.contains(part), "{part}: {said}");
        assert!(found.stdout.is_empty());
    }
    // Nothing answers there.
    let home = tempfile::tempdir().expect("a directory");
    let root = home.path().to_str().expect("a path");
    let found = run(
        NAME,
        &[
            ("HF_HUB_CACHE", root),
            ("HF_ENDPOINT", "http://127.0.0.1:9"),
        ],
    );
    let said = text(&found.stderr);
    assert!(said.contains("cannot be reached"), "{said}");
    // Nothing is asked where that is forbidden.
    let (endpoint, asked) = serve(Manner::Plain);
    for set in [("HF_HUB_OFFLINE", "1"), ("TRANSFORMERS_OFFLINE", "yes")] {
        let found = run(
            NAME,
            &[("HF_HUB_CACHE", root), ("HF_ENDPOINT", &endpoint), set],
        );
        assert_eq!(found.status.code(), Some(2));
    }
    assert!(asked.lock().expect("a lock").is_empty());
}
