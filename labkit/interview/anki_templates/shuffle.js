// Another order of the options each time; the back repeats the order of the front. Where this does
// not run, they stand in the order of the deck.
(function () {
  var list = document.querySelector("ol.choices");
  if (!list) return;
  var name = "labkit:" + list.dataset.card;
  var seed = 0;
  try {
    if (document.querySelector(".front")) {
      sessionStorage.setItem(name, 1 + Math.floor(Math.random() * 2147483645));
    }
    seed = Number(sessionStorage.getItem(name));
  } catch (error) {
    // A page without storage.
  }
  seed = seed || Math.floor(Date.now() / 86400000); // the day: both sides know it
  for (var left = list.children.length; left > 0; left--) {
    seed = (seed * 48271) % 2147483647;
    list.appendChild(list.children[seed % left]);
  }
})();
