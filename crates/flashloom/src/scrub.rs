//! Commands about scrubs, which speak to the running daemon.

use api::v1::{RateLimit, Scrub};
use api::value::Size;
use comfy_table::Table;
use control::Client;
use control::client::Asking;

use crate::cli::{Global, ScrubVerb};
use crate::daemon::ask;
use crate::exit::Outcome;
use crate::jobs::follow;
use crate::manage::time;
use crate::output::{facts, or_dash, print};

/// `flashloom pool scrub ...`
pub fn scrub(global: &Global, verb: ScrubVerb) -> Outcome {
    let scrub = match verb {
        ScrubVerb::Start { name, limit, how } => {
            let limit = RateLimit { limit };
            let begin = async |client: Client, asking: Asking| {
                client.begin_scrub(&name, &limit, &asking).await
            };
            let outcome = async |client: Client, _| client.scrub(&name).await;
            let Some(done) = follow(global, &how, begin, outcome)? else { return Ok(()) };
            done
        }
        ScrubVerb::Pause { name } => ask(global, async |client| client.pause_scrub(&name).await)?,
        ScrubVerb::Stop { name } => ask(global, async |client| client.stop_scrub(&name).await)?,
        ScrubVerb::Limit { name, limit } => {
            let how = RateLimit { limit };
            ask(global, async |client| client.limit_scrub(&name, &how).await)?
        }
        ScrubVerb::Show { name } => ask(global, async |client| client.scrub(&name).await)?,
    };
    print(global.output, &scrub, scrub_facts)
}

/// `running, 3 GiB of 12 GiB`
pub fn words(scrub: &Scrub) -> String {
    let size = |bytes: u64| Size::new(bytes).to_string();
    let state = scrub.state.name();
    match scrub.bytes {
        0 => state.to_owned(),
        bytes => format!("{state}, {} of {}", size(scrub.done.min(bytes)), size(bytes)),
    }
}

fn scrub_facts(scrub: &Scrub) -> Table {
    let limit = (scrub.limit > 0).then(|| format!("{}/s", Size::new(scrub.limit)));
    facts([
        ("scrub".to_owned(), words(scrub)),
        ("limit".to_owned(), or_dash(limit)),
        ("began".to_owned(), or_dash(scrub.began_ms.and_then(time))),
        ("ended".to_owned(), or_dash(scrub.ended_ms.and_then(time))),
        ("next".to_owned(), or_dash(scrub.due_ms.and_then(time))),
        ("damaged blocks".to_owned(), scrub.damaged_blocks.to_string()),
        ("put right".to_owned(), scrub.repaired_blocks.to_string()),
        ("lost".to_owned(), scrub.lost_blocks.to_string()),
        ("stripes not checked".to_owned(), scrub.unchecked_stripes.to_string()),
    ])
}
