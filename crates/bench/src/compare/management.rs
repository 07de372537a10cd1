//! What targets are asked by their management sockets: REST of ours, JSON-RPC of SPDK's. Above all how long the core has been
//! at work, since both spin, so that the system's account of them says nothing.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long a target may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

fn ask(socket: &str, request: &str) -> Result<UnixStream, String> {
    let failed = |e: std::io::Error| format!("{socket}: {e}");
    let mut stream = UnixStream::connect(socket).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.write_all(request.as_bytes()).map_err(failed)?;
    Ok(stream)
}

/// Has Flashloom make something.
pub fn post(socket: &str, path: &str, body: &str) -> Result<(), String> {
    let length = body.len();
    let text = whole(
        socket,
        &format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        ),
    )?;
    if text.starts_with("HTTP/1.1 201 ") { Ok(()) } else { Err(format!("{path}: {text}")) }
}

/// Flashloom's metrics, with the head of the answer.
pub fn scrape(socket: &str) -> Result<String, String> {
    whole(socket, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
}

fn whole(socket: &str, request: &str) -> Result<String, String> {
    let mut text = String::new();
    let mut stream = ask(socket, request)?;
    stream.read_to_string(&mut text).map_err(|e| format!("{socket}: {e}"))?;
    Ok(text)
}

/// Flashloom's first reactor, by its metrics.
pub fn flashloom(socket: &str) -> Result<Duration, String> {
    let text = scrape(socket)?;
    metric(&text).ok_or_else(|| format!("{socket}: no busy time among the metrics"))
}

fn metric(text: &str) -> Option<Duration> {
    const NAME: &str = "flashloom_reactor_busy_seconds_total{reactor=\"0\"} ";
    let seconds = text.lines().find_map(|line| line.strip_prefix(NAME))?;
    Duration::try_from_secs_f64(seconds.trim().parse().ok()?).ok()
}

/// SPDK's first reactor, by its RPC.
pub fn spdk(socket: &str) -> Result<Duration, String> {
    let result = spdk_rpc(socket, "framework_get_reactors", &serde_json::json!({}))?;
    reactor(&result).ok_or_else(|| format!("{socket}: no reactor in {result}"))
}

/// Has SPDK do something; its result.
pub fn spdk_rpc(
    socket: &str,
    method: &str,
    params: &serde_json::Value,
) -> Result<serde_json::Value, String> {
    let mut request = serde_json::json!({ "jsonrpc": "2.0", "id": 1, "method": method });
    if params.as_object().is_some_and(|given| !given.is_empty()) {
        request["params"] = params.clone();
    }
    let stream = ask(socket, &request.to_string())?;
    // The connection stays open: the first document is the answer.
    let mut answers = serde_json::Deserializer::from_reader(stream).into_iter();
    let mut answer: serde_json::Value = answers
        .next()
        .ok_or_else(|| format!("{socket}: no answer"))?
        .map_err(|e| format!("{socket}: {e}"))?;
    match answer.get("error") {
        Some(error) => Err(format!("{method}: {error}")),
        None => Ok(answer["result"].take()),
    }
}

fn reactor(result: &serde_json::Value) -> Option<Duration> {
    let busy = result["reactors"][0]["busy"].as_f64()?;
    Duration::try_from_secs_f64(busy / result["tick_rate"].as_f64()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_accounts_are_read() {
        let text = "# TYPE flashloom_reactor_busy_seconds_total counter\n\
                    flashloom_reactor_busy_seconds_total{reactor=\"0\"} 1.5\n";
        assert_eq!(metric(text), Some(Duration::from_millis(1500)));
        let result = serde_json::json!({
            "tick_rate": 1000, "reactors": [{ "lcore": 0, "busy": 250, "idle": 9 }] });
        assert_eq!(reactor(&result), Some(Duration::from_millis(250)));
        assert_eq!(reactor(&serde_json::Value::Null), None);
    }
}
