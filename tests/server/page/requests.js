(() => {
  const whole = window.fetch;
  let chunks = null;

  const answer = () =>
    new Response(
      new ReadableStream({
        start(controller) {
          chunks.forEach((chunk) => controller.enqueue(Uint8Array.from(chunk)));
          controller.close();
        },
      }),
    );

  window.requests = {
    polls: 0,
    bodies: [],
    answerWith: (given) => {
      chunks = given;
    },
  };

  window.fetch = async (address, options) => {
    if (address === "/gauges") {
      window.requests.polls += 1;
    } else {
      window.requests.bodies.push(JSON.parse(options.body));
    }
    return chunks !== null && address !== "/gauges" ? answer() : whole(address, options);
  };
})();
