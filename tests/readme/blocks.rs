//! The fenced blocks of a Markdown text, by scene.

/// What is played on one machine: a section (`##`), or a subsection (`###`) of a section that is not one walk.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) title: String,
    pub(crate) blocks: Vec<Block>,
}

/// One fenced block.
#[derive(Debug)]
pub(crate) struct Block {
    /// Line of its fence, from 1.
    pub(crate) line: usize,
    /// What stands behind the fence: the language and, for `text`, whose output it is.
    pub(crate) info: String,
    pub(crate) text: String,
}

impl Block {
    pub(crate) fn is(&self, language: &str) -> bool {
        self.info.split(' ').next() == Some(language)
    }

    /// The file that it is, if its first line names one: `# app.py`.
    pub(crate) fn file_name(&self) -> Option<&str> {
        let name = self.text.lines().next()?.strip_prefix("# ")?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        (name.contains('.') && name.chars().all(plain)).then_some(name)
    }
}

/// Sections whose subsections follow from each other: the reader stays on one machine.
const WALKS: [&str; 1] = ["Ten minutes from nothing"];

pub(crate) fn scenes(text: &str) -> Vec<Scene> {
    let mut scenes = vec![scene("the beginning")];
    let mut section = String::new();
    let mut open: Option<Block> = None;
    for (index, line) in text.lines().enumerate() {
        // Blocks of lists are indented.
        let bare = line.trim_start();
        if let Some(block) = &mut open {
            if bare == "```" {
                let done = open.take().unwrap();
                scenes.last_mut().unwrap().blocks.push(done);
            } else {
                block.text.push_str(line);
                block.text.push('\n');
            }
        } else if let Some(info) = bare.strip_prefix("```") {
            open = Some(Block {
                line: index + 1,
                info: info.to_owned(),
                text: String::new(),
            });
        } else if let Some(title) = line.strip_prefix("## ") {
            title.clone_into(&mut section);
            scenes.push(scene(title));
        } else if let Some(title) = line.strip_prefix("### ")
            && !WALKS.contains(&section.as_str())
        {
            scenes.push(scene(&format!("{section}: {title}")));
        }
    }
    assert!(open.is_none(), "a block without an end");
    for walk in WALKS {
        assert!(
            scenes.iter().any(|scene| scene.title == walk),
            "there is no section {walk:?}"
        );
    }
    scenes
}

fn scene(title: &str) -> Scene {
    Scene {
        title: title.to_owned(),
        blocks: Vec::new(),
    }
}
