//! The name of a subject in titles and in the names of exported files.

use std::path::Path;

use attnscope_run::Subject;

/// A name that says nothing: the directory above says more.
const BARE: &str = "model";

/// The subject's name; of a directory called `model`, the name of the one above it.
pub fn name_of(subject: &Subject) -> String {
    let name = subject.name();
    let Some(model) = subject.model().filter(|_| name == BARE) else {
        return name;
    };
    let files = model.checkpoint.files();
    let directory = files.iter().find_map(|file| file.parent());
    let above = directory.filter(|directory| directory.ends_with(BARE));
    let above = above.and_then(Path::parent).and_then(Path::file_name);
    above.map_or(name, |above| above.to_string_lossy().into_owned())
}
