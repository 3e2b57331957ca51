//! The step `chain`: our metrics on their way through a real Telegraf and InfluxDB to a real Kapacitor (`conformance/chain`).
//!
//! Telegraf and Kapacitor are built from the Go module proxy with pinned versions, which takes some five minutes on two
//! cores the first time. So the step runs on request. InfluxDB is Debian's package.

use std::process::Command;

use crate::command::run;
use crate::compile::{Binary, Built};
use crate::conformance::{CONCURRENCY, node_result};
use crate::install::{go, need_tools, npm};
use crate::step::{Failure, Tally};
use crate::tools::counted;
use crate::workshop::Workshop;

const STEP: &str = "chain";

/// The programs that build the chain and run its tests.
const TOOLS: [&str; 5] = ["node", "npm", "go", "openssl", "influxd"];

/// The package of Telegraf; `conformance/telegraf` pins its version.
const TELEGRAF: &str = "github.com/influxdata/telegraf/cmd/telegraf";
/// What `ops/telegraf.conf` uses. All plugins together would need hundreds of modules more.
const TELEGRAF_TAGS: &str = "-tags=custom,inputs.socket_listener,outputs.influxdb,parsers.influx,serializers.influx";

/// The packages of Kapacitor and of its client; `conformance/kapacitor` pins their version.
const KAPACITOR: [&str; 2] =
    ["github.com/influxdata/kapacitor/cmd/kapacitord", "github.com/influxdata/kapacitor/cmd/kapacitor"];
/// Kapacitor 1.5.9 needs a module (`ugorji/go`) whose start panics if it was built with Go 1.22 or newer ("encoding alphabet
/// includes duplicate symbols"), and generated code of other modules accepts no newer version of it. So Kapacitor is built
/// with an older Go, which the newer one fetches.
const KAPACITOR_GO: &str = "go1.21.13";

/// Builds all programs of the chain.
pub(crate) fn build(workshop: &Workshop) -> Result<Built, Failure> {
    need_tools(workshop, STEP, |program| TOOLS.contains(&program))?;
    let built = Binary::Release.build(workshop, STEP)?;
    npm(workshop, STEP)?;
    let (mut telegraf, mut kapacitor) = (go(workshop, "telegraf", TELEGRAF), go(workshop, "kapacitor", KAPACITOR[0]));
    telegraf.env("GOFLAGS", TELEGRAF_TAGS);
    kapacitor.arg(KAPACITOR[1]).env("GOTOOLCHAIN", KAPACITOR_GO);
    run(workshop, STEP, telegraf, |_| ())?;
    run(workshop, STEP, kapacitor, |_| ())?;
    Ok(built)
}

/// Lets metrics go through it.
pub(crate) fn chain(workshop: &Workshop, built: &Built) -> Result<Tally, Failure> {
    let mut tests = Command::new("node");
    tests.args([
        "--test",
        CONCURRENCY,
        "--test-force-exit",
        "--test-reporter=spec",
        "alerts.test.mjs",
        "metrics.test.mjs",
    ]);
    tests.current_dir(workshop.root.join("conformance/chain"));
    tests.env("TIDINGS_BIN", &built.binary).env("JUDGE_CHAIN", "1");
    counted(workshop, STEP, tests, node_result)
}
