// What every snippet of the page has at hand.
let client = prombus_client::Client::new("http://127.0.0.1:7070", None)?;
let live = client.connect().await?;
