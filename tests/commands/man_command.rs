//! Manual pages: one for each command, printed or written.

use testing::checkpoint_copy::attnscope;

fn printed(arguments: &[&str]) -> String {
    let output = attnscope(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_page_has_the_flags_the_values_and_the_exit_codes_of_its_command() {
    let page = printed(&["man", "check"]);
    let title = ".TH attnscope-check 1 \"\" \"attnscope ";
    assert_eq!(page.matches(title).count(), 1, "{page}");
    for part in [
        ".SH NAME\nattnscope\\-check \\- ",
        "\\fB\\-\\-fail\\-on\\fR",
        "sarif",
        ".SH \"EXIT STATUS\"\n.TP\n0\n",
        ".SH \"SEE ALSO\"\nattnscope(1)\n",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    // Quotation marks are set up once, before the first section.
    assert_eq!(page.matches(".ds Aq \\(aq").count(), 1);
    let nested = printed(&["man", "lab", "rescale"]);
    assert!(nested.contains(".SH \"SEE ALSO\"\nattnscope\\-lab(1)\n"));
    let main = printed(&["man"]);
    assert!(main.contains(".TH attnscope 1 \"\" ") && main.contains("attnscope\\-check(1)"));
}

#[test]
fn a_command_that_does_not_exist_is_told_with_the_nearest() {
    let output = attnscope(&["man", "chekc"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said.contains("found \"chekc\"; did you mean check?"),
        "{said}"
    );
}

#[test]
fn pages_are_written_into_a_directory_and_replace_nothing_unasked() {
    let place = tempfile::tempdir().expect("a directory");
    let directory = place.path().join("man1");
    let to = directory.to_str().expect("a path");
    assert_eq!(printed(&["man", "--output", to]), "");
    let written = |name: &str| std::fs::read_to_string(directory.join(name)).expect("a page");
    assert_eq!(written("attnscope-check.1"), printed(&["man", "check"]));
    assert_eq!(written("attnscope.1"), printed(&["man"]));
    let n_pages = std::fs::read_dir(&directory).expect("pages").count();
    assert_eq!(n_pages, attnscope::cli::man_pages().expect("pages").len());
    let own = directory.join("attnscope-diff.1");
    std::fs::write(&own, "mine").expect("writes");
    std::fs::remove_file(directory.join("attnscope.1")).expect("is removed");
    let refused = attnscope(&["man", "--output", to]);
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(written("attnscope-diff.1"), "mine");
    // Nothing is written where something is in the way.
    assert!(!directory.join("attnscope.1").exists());
    printed(&["man", "--output", to, "--force"]);
    assert_eq!(written("attnscope-diff.1"), printed(&["man", "diff"]));
}
