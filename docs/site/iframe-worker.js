/* A page opened as a file may not start workers, and the search is one: there it runs in a frame. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = `<script src="${url}"></script>`;
      this.frame.addEventListener("load", () => {
        const answer = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        this.frame.contentWindow.postMessage = answer;
        const waiting = this.waiting;
        this.waiting = null;
        waiting.forEach((data) => this.postMessage(data));
      });
      document.body.append(this.frame);
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }
  };
}
