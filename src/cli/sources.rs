//! `hooksluice sources`: the running server's sources with their secrets.

use std::process::ExitCode;
use std::time::Duration;

use super::client::{AdminArgs, AdminClient, block_on, escaped};
use super::output;
use crate::admin::dto::{Learn, LearnStatus, SecretStatus, SourceStatus, Status};

/// A secret that ends so soon is worth a word.
const ENDS_SOON: Duration = Duration::from_secs(7 * 86_400);

/// The command's arguments.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    admin: AdminArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    /// Take the next secret that a source's provider hands over, within ten minutes (`learn = "once"`)
    Learn(LearnArgs),
}

#[derive(clap::Args, Debug)]
struct LearnArgs {
    /// The source's name
    name: String,
    /// Take one beside the secrets that the source has
    #[arg(long)]
    add: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Asks the running server and prints what it says.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        None => block_on(list(args.json, args.admin)),
        Some(Action::Learn(args)) => block_on(learn(args)),
    }
}

async fn list(json: bool, admin: AdminArgs) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(&admin)?;
    let status: Status = client.get("/api/v1/status").await?;
    if json {
        output::print_json(&status.sources)?;
    } else {
        output::print(&table(&status.sources))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn learn(args: LearnArgs) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(&args.admin)?;
    let path = format!("/api/v1/sources/{}/learn", escaped(&args.name));
    let armed: LearnStatus = client.post(&path, &Learn { add: args.add }).await?;
    if args.json {
        output::print_json(&armed)?;
    } else {
        output::print(&said_when_armed(&args.name, args.add, &armed))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn said_when_armed(name: &str, adds: bool, armed: &LearnStatus) -> String {
    let name = output::printable(name);
    let then = match adds {
        false => format!("and {name} is sealed then"),
        true => format!(
            "beside those that {name} has, which stay valid until their files are moved away; {name} takes no other then"
        ),
    };
    format!(
        "{name} is armed until {}: it takes the next secret that is handed over, whoever sends it. Create the webhook at the \
         provider now.\nThe secret becomes a file in {}, {then}: hooksluice sources\n",
        output::printable(armed.armed_until.as_deref().unwrap_or("now")),
        output::printable(&armed.directory),
    )
}

fn table(sources: &[SourceStatus]) -> String {
    let mut table = output::table(&["SOURCE", "PROVIDER", "PATH", "SECRET", "USE"]);
    for source in sources {
        let mut cells = [&source.name, &source.provider, &source.path].map(|text| output::printable(text));
        if source.secrets.is_empty() {
            let [name, provider, path] = cells;
            let why = source.learn.as_ref().map_or("it does not sign".to_owned(), |learn| {
                said_of_learning(&source.name, learn).unwrap_or_default()
            });
            table.add_row([name, provider, path, "-".to_owned(), why]);
            continue;
        }
        let sealed = source.learn.as_ref().is_some_and(|learn| learn.state == "sealed");
        let last = source.secrets.len() - 1;
        for (index, secret) in source.secrets.iter().enumerate() {
            let [name, provider, path] = cells;
            let seal = if sealed && index == last { "; sealed" } else { "" };
            let said = in_words(secret) + seal;
            table.add_row([name, provider, path, output::printable(&secret.label), said]);
            cells = Default::default();
        }
        let armed = source.learn.as_ref().filter(|learn| learn.state == "armed");
        if let Some(said) = armed.and_then(|learn| said_of_learning(&source.name, learn)) {
            let [name, provider, path] = cells;
            table.add_row([name, provider, path, "-".to_owned(), said]);
        }
    }
    output::lines(&table)
}

/// What a person should know of a source that takes its secret in band; nothing when it has one and is sealed.
fn said_of_learning(name: &str, learn: &LearnStatus) -> Option<String> {
    match (learn.state.as_str(), &learn.armed_until) {
        ("armed", Some(until)) => Some(format!(
            "armed until {}: takes the next that is handed over",
            output::printable(until)
        )),
        ("no_secret", _) => Some(format!(
            "has no secret yet: hooksluice sources learn {}",
            output::printable(name)
        )),
        _ => None,
    }
}

/// When it was last used, whether it can be removed, and when it ends.
pub(super) fn in_words(secret: &SecretStatus) -> String {
    let unused = output::age(Duration::from_secs(secret.unused_seconds.unwrap_or(0)));
    let since = secret.known_since.as_deref();
    let others = output::count(secret.others, "other delivery was", "other deliveries were");
    let mut words = match (secret.standing.as_str(), since, &secret.last_used_at) {
        ("ended", ..) => "ended: it vouches for nothing".to_owned(),
        ("safe_to_remove", _, Some(_)) => {
            format!("safe to remove: unused for {unused} while {others} verified")
        }
        ("safe_to_remove", _, None) => {
            format!("safe to remove: never used in {unused} while {others} verified")
        }
        (_, _, Some(used)) => {
            let used = output::printable(used);
            let quiet = if secret.standing == "quiet" {
                ", nor was any other since"
            } else {
                ""
            };
            format!("last used {used}{quiet}")
        }
        (_, Some(since), None) => format!("never used since {}", output::printable(since)),
        (_, None, None) => "never used".to_owned(),
    };
    if let Some(end) = &secret.not_after {
        words.push_str(&format!("; not_after {}", output::printable(end)));
    }
    words
}

/// What a person should know or do about a source's secrets.
pub(super) fn advice(source: &SourceStatus) -> Vec<String> {
    let name = output::printable(&source.name);
    let mut out = Vec::new();
    if let Some(said) = source
        .learn
        .as_ref()
        .and_then(|learn| said_of_learning(&source.name, learn))
    {
        out.push(format!("{name}: {said}"));
    }
    let ends = |secret: &SecretStatus| secret.ends_in_seconds.map(Duration::from_secs);
    let last_end = source.secrets.iter().map(ends).collect::<Option<Vec<_>>>();
    let last_end = last_end.and_then(|ends| ends.into_iter().max());
    match last_end {
        Some(Duration::ZERO) => out.push(format!(
            "{name}: every secret has ended (not_after), and everything is refused. Add the provider's current secret"
        )),
        Some(left) if left <= ENDS_SOON => out.push(format!(
            "{name}: its last secret ends in {} (not_after), and everything is refused from then on. Add the provider's \
             current secret",
            output::age(left)
        )),
        Some(_) | None => {}
    }
    for secret in &source.secrets {
        let label = output::printable(&secret.label);
        let soon = ends(secret).filter(|left| *left <= ENDS_SOON && last_end.is_none_or(|last| *left < last));
        match (secret.standing.as_str(), soon) {
            ("in_use", Some(left)) => out.push(format!(
                "{name}: the secret {label} ends in {} (not_after) and is still used: {}. Does the provider sign with \
                 another by then?",
                output::age(left),
                in_words(secret)
            )),
            ("ended", _) if last_end != Some(Duration::ZERO) => out.push(format!(
                "{name}: the secret {label} has ended (not_after). Remove it, if nothing uses it any more"
            )),
            ("safe_to_remove", _) => out.push(format!("{name}: the secret {label} is {}", in_words(secret))),
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    fn secret(label: &str, standing: &str) -> SecretStatus {
        SecretStatus {
            label: label.into(),
            known_since: Some("2026-11-01T00:00:00Z".into()),
            standing: standing.into(),
            unused_seconds: Some(20 * DAY),
            others: 1_234,
            ..SecretStatus::default()
        }
    }

    fn source(secrets: Vec<SecretStatus>) -> SourceStatus {
        SourceStatus {
            name: "stripe".into(),
            provider: "stripe".into(),
            path: "/webhooks/stripe".into(),
            secrets,
            ..SourceStatus::default()
        }
    }

    #[test]
    fn each_standing_is_said_with_what_it_rests_on() {
        let used = |standing: &str| SecretStatus {
            last_used_at: Some("2026-11-29T00:00:00Z".into()),
            ..secret("old", standing)
        };
        let said = [
            (used("in_use"), "last used 2026-11-29T00:00:00Z"),
            (used("quiet"), "last used 2026-11-29T00:00:00Z, nor was any other since"),
            (
                used("safe_to_remove"),
                "safe to remove: unused for 20d 0h while 1234 other deliveries were verified",
            ),
            (
                secret("old", "safe_to_remove"),
                "safe to remove: never used in 20d 0h while 1234 other deliveries were verified",
            ),
            (secret("old", "never_used"), "never used since 2026-11-01T00:00:00Z"),
            (secret("old", "ended"), "ended: it vouches for nothing"),
        ];
        for (secret, words) in said {
            assert_eq!(in_words(&secret), words);
        }
    }

    #[test]
    fn a_source_whose_secret_arrives_in_band_says_how_that_stands() {
        let learning = |secrets, state: &str, until: Option<&str>| SourceStatus {
            learn: Some(LearnStatus {
                state: state.into(),
                armed_until: until.map(str::to_owned),
                armed_for_seconds: until.map(|_| 600),
                directory: "/var/lib/hooksluice/secrets/stripe".into(),
            }),
            ..source(secrets)
        };
        let waiting = learning(vec![], "no_secret", None);
        assert!(advice(&waiting)[0].contains("hooksluice sources learn stripe"));
        assert!(table(&[waiting]).contains("has no secret yet: hooksluice sources learn stripe"));
        let armed = learning(vec![secret("a", "in_use")], "armed", Some("2026-11-30T00:10:00Z"));
        let text = table(&[armed]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[1].starts_with("stripe") && lines[2].contains("armed until 2026-11-30T00:10:00Z"),
            "{text}"
        );
        let sealed = learning(vec![secret("a", "in_use")], "sealed", None);
        assert_eq!(advice(&sealed), Vec::<String>::new());
        let text = table(&[sealed]);
        assert!(
            text.lines().count() == 2 && text.trim_end().ends_with("; sealed"),
            "{text}"
        );
    }

    #[test]
    fn who_takes_a_further_secret_is_told_that_the_old_ones_stay() {
        let armed = LearnStatus {
            directory: "secrets/asana".into(),
            ..LearnStatus::default()
        };
        let first = said_when_armed("asana", false, &armed);
        assert!(
            first.contains("in secrets/asana, and asana is sealed then: "),
            "{first}"
        );
        let further = said_when_armed("asana", true, &armed);
        assert!(
            further.contains("beside those that asana has, which stay valid") && !further.contains("sealed"),
            "{further}"
        );
    }

    #[test]
    fn secrets_are_listed_under_their_source() {
        let text = table(&[source(vec![
            secret("new", "never_used"),
            secret("old", "safe_to_remove"),
        ])]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[1].starts_with("stripe") && lines[1].contains("/webhooks/stripe"),
            "{text}"
        );
        assert_eq!(lines[2].find("old"), lines[0].find("SECRET"), "{text}");
        assert!(lines[2].contains("safe to remove"), "{text}");
    }

    #[test]
    fn what_can_be_removed_and_what_ends_needs_a_person() {
        let ending = |label: &str, standing: &str, seconds| SecretStatus {
            ends_in_seconds: Some(seconds),
            not_after: Some("2026-12-02T00:00:00Z".into()),
            last_used_at: Some("2026-11-29T00:00:00Z".into()),
            ..secret(label, standing)
        };
        let none = source(vec![
            secret("new", "in_use"),
            secret("old", "quiet"),
            secret("x", "never_used"),
        ]);
        assert_eq!(advice(&none), Vec::<String>::new());
        let removable = advice(&source(vec![secret("new", "in_use"), secret("old", "safe_to_remove")]));
        assert_eq!(removable.len(), 1);
        assert!(
            removable[0].contains("the secret old is safe to remove"),
            "{removable:?}"
        );
        let still_used = advice(&source(vec![secret("new", "in_use"), ending("old", "in_use", 2 * DAY)]));
        assert!(
            still_used[0].contains("ends in 2d 0h") && still_used[0].contains("still used"),
            "{still_used:?}"
        );
        let far = advice(&source(vec![secret("new", "in_use"), ending("old", "in_use", 8 * DAY)]));
        assert_eq!(far, Vec::<String>::new());
        let last = advice(&source(vec![ending("only", "in_use", DAY)]));
        assert_eq!(last.len(), 1);
        assert!(last[0].contains("its last secret ends in 1d 0h"), "{last:?}");
        let over = advice(&source(vec![ending("a", "ended", 0), ending("b", "ended", 0)]));
        assert_eq!(over.len(), 1);
        assert!(over[0].contains("everything is refused"), "{over:?}");
        let gone = advice(&source(vec![secret("new", "in_use"), ending("old", "ended", 0)]));
        assert!(gone[0].contains("has ended"), "{gone:?}");
    }
}
