// A page on disk may not start a web worker. The search then runs in a hidden frame, which the theme's worker
// recognizes by the name IFrameWorker.
if (location.protocol === "file:")
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      frame.reply = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.ready = new Promise(done => (frame.started = () => done(frame.contentWindow)))
      const page = frame.contentDocument
      page.open()
      page.write(
        "<body><script>postMessage = data => frameElement.reply(data)</script>" +
          `<script src="${url}" onload="frameElement.started()"></script>`
      )
      page.close()
    }

    async postMessage(data) {
      const frame = await this.ready
      frame.dispatchEvent(new frame.MessageEvent("message", { data }))
    }
  }
