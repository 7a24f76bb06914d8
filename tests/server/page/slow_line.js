(() => {
  const whole = window.fetch;
  const pause = () => new Promise((resolve) => setTimeout(resolve, window.eventPauseMs));
  const encoder = new TextEncoder();

  const oneByOne = () =>
    new TransformStream({
      async transform(text, controller) {
        for (const event of text.split(/(?<=\n\n)/)) {
          await pause();
          controller.enqueue(encoder.encode(event));
        }
      },
    });

  window.eventPauseMs = 0;
  window.fetch = async (address, options) => {
    const response = await whole(address, options);
    return address !== "/v1/chat/completions" || !response.ok
      ? response
      : new Response(response.body.pipeThrough(new TextDecoderStream()).pipeThrough(oneByOne()));
  };
})();
