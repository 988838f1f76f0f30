//! What crates.io gets of the program: every file that it is built from, and not more than may be uploaded.

use std::collections::BTreeSet;
use std::process::Command;

/// Bytes of files that are no source. They hardly become smaller when the crate is compressed, and crates.io takes 10 MB.
const MOST_BYTES: u64 = 9_000_000;

/// Files of a crate as cargo would package them, from the top of the repository.
fn packaged() -> BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").expect("run by cargo test");
    let output = Command::new(cargo)
        .args(["package", "--list", "--allow-dirty", "--offline"])
        .args(["--package", "attnscope"])
        .current_dir(testing::root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{output:?}");
    let list = String::from_utf8(output.stdout).expect("text");
    list.lines().map(str::to_owned).collect()
}

/// The newest note of the compiler on what the program's library was built from; not that of its own tests.
fn noted() -> String {
    let deps = testing::program().with_file_name("deps");
    let entries = std::fs::read_dir(&deps).expect("what was built");
    let of_library = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name().into_string().ok()?;
        let is_note = name.starts_with("attnscope-") && name.ends_with(".d");
        let text = is_note.then(|| std::fs::read_to_string(entry.path()).ok())??;
        let changed = entry.metadata().ok()?.modified().ok()?;
        // A check of the program leaves a note that looks alike, of main.rs.
        let is_of_library = text.contains("/libattnscope-") && text.contains(": src/lib.rs ");
        is_of_library.then_some((changed, text))
    });
    let newest = of_library.max_by_key(|(changed, _)| *changed);
    newest.expect("a note beside the library").1
}

/// Files that the program was built from, less those of the other crates.
fn built_from() -> BTreeSet<String> {
    let root = testing::root().canonicalize().expect("the repository");
    let noted = noted();
    let rule = noted.lines().next().expect("a rule");
    let (_, files) = rule.split_once(": ").expect("a rule");
    // A space inside a name is escaped.
    let files = files.replace("\\ ", "\0");
    let inside = |file: &str| {
        let path = root.join(file.replace('\0', " ")).canonicalize().ok()?;
        let path = path.strip_prefix(&root).ok()?;
        let is_of_others = path
            .ancestors()
            .skip(1)
            .take_while(|above| !above.as_os_str().is_empty())
            .any(|above| root.join(above).join("Cargo.toml").exists());
        (!is_of_others).then(|| path.display().to_string())
    };
    let of_library = files.split_whitespace().filter_map(inside);
    of_library.chain(["src/main.rs".to_owned()]).collect()
}

#[test]
fn the_crate_holds_what_the_program_is_built_from() {
    let (packaged, built_from) = (packaged(), built_from());
    assert!(
        built_from.contains("src/lib.rs")
            && built_from.contains("src/python/attnscope/_capture/probing.py")
            && built_from.contains("src/python/attnscope/_live/pytorch.py"),
        "{built_from:?}"
    );
    let missing: Vec<_> = built_from.difference(&packaged).collect();
    assert!(
        missing.is_empty(),
        "include in Cargo.toml lacks {missing:?}"
    );
    for name in ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "Cargo.lock"] {
        assert!(packaged.contains(name), "{name}");
    }
    // The wheel has these; the program joins the capture script from some of them.
    let is_of_wheel = |name: &&String| {
        let is_python = name.starts_with("src/python")
            && !["/_capture/", "/_live/"]
                .iter()
                .any(|own| name.contains(own));
        is_python || name.starts_with("src/packaging")
    };
    assert_eq!(packaged.iter().find(is_of_wheel), None);
    let others = packaged.iter().filter(|name| !name.ends_with(".rs"));
    let sizes = others.filter_map(|name| testing::root().join(name).metadata().ok());
    let n_bytes: u64 = sizes.map(|about| about.len()).sum();
    assert!(n_bytes <= MOST_BYTES, "{n_bytes} bytes are no source");
}
